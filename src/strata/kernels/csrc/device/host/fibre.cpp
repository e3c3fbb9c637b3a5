#include "fibre.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>

#include <memory>
#include <vector>
#endif

namespace strata::simt {

namespace {

size_t guard_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

Stacks::~Stacks() { release(); }

void Stacks::release() {
    if (base_) munmap(base_, count_ * (bytes + guard_bytes()));
    base_ = nullptr;
    count_ = 0;
}

void Stacks::reserve(int count) {
    if (count <= count_) return;
    release();
    const size_t guard = guard_bytes(), each = bytes + guard;
    void* mapped =
        mmap(nullptr, count * each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<unsigned char*>(mapped);
    count_ = count;
    for (int i = 0; i < count; ++i) mprotect(base_ + i * each, guard, PROT_NONE);
}

#if defined(__x86_64__)

// The callee-saved registers lie on the stack that is left; kernels do not change the floating-point control words.
asm(R"(
    .text
    .p2align 4
    .local strata_simt_switch
    .type strata_simt_switch, @function
strata_simt_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size strata_simt_switch, .-strata_simt_switch
)");
extern "C" void strata_simt_switch(void** from, void* to);

void* Stacks::prepare(int index, void (*entry)()) {
    auto* top = reinterpret_cast<uint64_t*>(base_ + (index + 1) * (bytes + guard_bytes()));
    top[-1] = 0;  // where a return address would lie: `entry` starts aligned as after a call
    top[-2] = reinterpret_cast<uint64_t>(entry);
    for (int i = 3; i <= 8; ++i) top[-i] = 0;
    return top - 8;
}

void switch_fibre(void** from, void* to) { strata_simt_switch(from, to); }

#elif defined(__aarch64__)

asm(R"(
    .text
    .p2align 4
    .local strata_simt_switch
    .type strata_simt_switch, %function
strata_simt_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size strata_simt_switch, .-strata_simt_switch
)");
extern "C" void strata_simt_switch(void** from, void* to);

void* Stacks::prepare(int index, void (*entry)()) {
    auto* top = reinterpret_cast<uint64_t*>(base_ + (index + 1) * (bytes + guard_bytes()));
    for (int i = 1; i <= 20; ++i) top[-i] = 0;
    top[-20 + 11] = reinterpret_cast<uint64_t>(entry);  // x30
    return top - 20;
}

void switch_fibre(void** from, void* to) { strata_simt_switch(from, to); }

#else

// The C library's contexts: slower, everywhere. A context lives at the top of its fibre's stack, or in the thread that
// switched away from its own stack.
namespace {

struct Saved {
    ucontext_t context;
};

}  // namespace

void* Stacks::prepare(int index, void (*entry)()) {
    unsigned char* low = base_ + index * (bytes + guard_bytes()) + guard_bytes();
    auto* saved = reinterpret_cast<Saved*>(low + bytes - (sizeof(Saved) + 63) / 64 * 64);
    getcontext(&saved->context);
    saved->context.uc_stack.ss_sp = low;
    saved->context.uc_stack.ss_size = static_cast<size_t>(reinterpret_cast<unsigned char*>(saved) - low);
    saved->context.uc_link = nullptr;
    makecontext(&saved->context, entry, 0);
    return saved;
}

void switch_fibre(void** from, void* to) {
    Saved here;  // on the stack that is left, which stays as it is until somebody comes back
    *from = &here;
    swapcontext(&here.context, &static_cast<Saved*>(to)->context);
}

#endif

}  // namespace strata::simt
