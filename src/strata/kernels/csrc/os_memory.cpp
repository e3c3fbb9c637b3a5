#include "os_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>

#ifdef __linux__
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace strata {
namespace {

constexpr uintptr_t huge = 2 << 20;

#ifdef __linux__
constexpr int populate_read = 22;  // MADV_POPULATE_READ; headers before Linux 5.14 lack the name

uintptr_t page_size() {
    return static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
}
#endif

}  // namespace

bool advise_huge(void* data, size_t bytes) {
#ifdef __linux__
    const uintptr_t address = reinterpret_cast<uintptr_t>(data);
    const uintptr_t first = (address + huge - 1) / huge * huge, end = (address + bytes) / huge * huge;
    if (first >= end) return false;
    return madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE) == 0;
#else
    (void)data, (void)bytes;
    return false;
#endif
}

int populate(const void* data, size_t bytes) {
    if (bytes == 0) return 0;
#ifdef __linux__
    const bool present = resident(data, bytes) == bytes;
    const uintptr_t page = page_size(), address = reinterpret_cast<uintptr_t>(data);
    const uintptr_t first = address / page * page;
    const int code = madvise(reinterpret_cast<void*>(first), address + bytes - first, populate_read) ? errno : 0;
    if (code != EINVAL && (code != 0 || present)) return code;
    // A guest's page that a disk has just filled is still unknown to its processor: the first touch of each costs 4 us,
    // here beside the reads of other threads.
#else
    const uintptr_t page = 4096;
#endif
    const auto* at = static_cast<const volatile unsigned char*>(data);
    for (size_t offset = 0; offset < bytes; offset += page) (void)at[offset];
    (void)at[bytes - 1];
    return 0;
}

size_t resident(const void* data, size_t bytes) {
#ifdef __linux__
    const uintptr_t page = page_size(), begin = reinterpret_cast<uintptr_t>(data), end = begin + bytes;
    std::vector<unsigned char> in_memory(16384);
    const uintptr_t piece = in_memory.size() * page;
    size_t found = 0;
    for (uintptr_t at = begin / page * page; at < end; at += piece) {
        const uintptr_t stop = std::min(at + piece, end);
        if (mincore(reinterpret_cast<void*>(at), stop - at, in_memory.data()) != 0) return bytes;
        for (uintptr_t first = at; first < stop; first += page)
            if (in_memory[(first - at) / page] & 1) found += std::min(first + page, end) - std::max(first, begin);
    }
    return found;
#else
    (void)data;
    return bytes;
#endif
}

int set_memory_policy(const std::vector<int>& nodes) {
#if defined(__linux__) && defined(SYS_set_mempolicy)
    constexpr int take_default = 0, prefer = 1, interleave = 3;  // MPOL_* of <linux/mempolicy.h>
    constexpr size_t bits = 8 * sizeof(unsigned long);
    std::vector<unsigned long> mask;
    for (int node : nodes) {
        if (node < 0) return EINVAL;
        mask.resize(std::max(mask.size(), node / bits + 1));
        mask[node / bits] |= 1ul << node % bits;
    }
    const int mode = nodes.empty() ? take_default : nodes.size() == 1 ? prefer : interleave;
    // The kernel reads one bit less than it is told.
    const unsigned long length = mask.empty() ? 0 : mask.size() * bits + 1;
    return syscall(SYS_set_mempolicy, mode, mask.empty() ? nullptr : mask.data(), length) == 0 ? 0 : errno;
#else
    return nodes.empty() ? 0 : ENOSYS;
#endif
}

}  // namespace strata
