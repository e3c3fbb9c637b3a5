// What the system is told about pages of memory, and asked about them. Everything is a wish: where the system cannot
// grant it (an old kernel, a sandbox), results say so and the work goes on with the pages as they are.
#pragma once

#include <cstddef>
#include <vector>

namespace strata {

// Huge pages for the whole 2 MiB pieces of [data, data + bytes): before the first touch of anonymous memory, before the
// pages of a mapped file are read. False when refused.
bool advise_huge(void* data, size_t bytes);

// Brings the pages of a mapping in, in order, and maps them; touches them when some were missing. Returns 0, or the
// errno of what went wrong (EFAULT: the file has become shorter). Before Linux 5.14 it only reads a byte of every page.
int populate(const void* data, size_t bytes);

// Bytes of a mapping that are in memory now, to whole pages; all of them when the system does not say.
size_t resident(const void* data, size_t bytes);

// New memory of the calling thread and of threads it starts: from `nodes[0]` as long as it has some (one node), from
// all of them in turn (several), as the system likes (none). Returns 0 or errno.
int set_memory_policy(const std::vector<int>& nodes);

}  // namespace strata
