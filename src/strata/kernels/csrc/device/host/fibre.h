// A fibre: a stack of its own, entered and left by switching stack pointers; a switch takes a few nanoseconds.
#pragma once

#include <cstddef>

namespace strata::simt {

// Equal stacks in one mapping, each with a page below it that faults when it overflows.
class Stacks {
public:
    static constexpr size_t bytes = 128 << 10;

    Stacks() = default;
    Stacks(const Stacks&) = delete;
    Stacks& operator=(const Stacks&) = delete;
    ~Stacks();

    // At least `count` stacks; earlier ones may move, so none may be in use.
    void reserve(int count);
    // A fibre that has not run, on stack `index`: the first switch to it calls `entry`, which must never return.
    void* prepare(int index, void (*entry)());

private:
    void release();

    unsigned char* base_ = nullptr;
    int count_ = 0;
};

// Leaves the running fibre, whose state goes to *from, for `to`. Returns when somebody switches back.
void switch_fibre(void** from, void* to);

}  // namespace strata::simt
