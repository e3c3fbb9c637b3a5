#include "layers_cache.h"

#include "layers_kv.h"

namespace strata::STRATA_ISA {
namespace {

void write(Pool& pool, const Plane& plane, const int32_t* slots, const int32_t* entries, const float* x, int64_t n) {
    // Cut by heads, not by rows: an entry that is listed twice is written in order.
    const int chunks = chunks_for(plane.heads, n * plane.width() * 2, pool.threads());
    auto run = [&](int chunk, int) {
        const int64_t first = chunk_begin(plane.heads, chunks, chunk);
        const int64_t end = chunk_begin(plane.heads, chunks, chunk + 1);
        for (int64_t i = 0; i < n; ++i) {
            if (entries[i] == kNoEntry) continue;
            const int64_t at = plane.place(plane.pages_of(slots[i]), entries[i]) * plane.dim;
            for (int64_t h = first; h < end; ++h)
                write_values(plane, at + h * plane.head_step(), plane.dim, x + i * plane.width() + h * plane.dim);
        }
    };
    pool.parallel_for(chunks, run);
}

}  // namespace

extern const CacheKernels cache_kernels = {write};

}  // namespace strata::STRATA_ISA
