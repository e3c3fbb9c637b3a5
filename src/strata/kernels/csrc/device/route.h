// The router's choice of experts for each row.
#pragma once

#include "choice.h"

namespace strata::STRATA_ISA {

// logits [rows, experts] -> ids, weights [rows, top_k]. Grid: x rows. Dynamic shared memory: 8 bytes per expert, 4 per
// place.
STRATA_KERNEL_OF(route_threads, route, (const float* logits, int32_t* ids, float* weights, int64_t num_experts,
                                        int64_t top_k, int64_t renormalise)) {
    in_turn();
    DYNAMIC_SHARED(float, e);
    const int64_t row = block_x();
    const int experts = static_cast<int>(num_experts), chosen = static_cast<int>(top_k);
    route_row(logits + row * experts, ids + row * chosen, weights + row * chosen, experts, chosen, renormalise != 0, e,
              reinterpret_cast<int32_t*>(e + 2 * experts));
}

}  // namespace strata::STRATA_ISA
