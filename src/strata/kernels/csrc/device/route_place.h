// The router's choice of experts for one row and the placing of its call, by one block of threads.
#pragma once

#include "choice.h"
#include "placing.h"
#include "quantised_rows.h"

namespace strata::STRATA_ISA {

static_assert(route_threads == place_threads, "one block does both");

// As `route` and then `rendezvous_place` for one row. Dynamic shared memory: float [2 * experts], then as
// rendezvous_place.
STRATA_KERNEL_BESIDE(place_threads, 1, route_place,
                 (const float* logits, int32_t* ids, float* weights, int64_t renormalise, const float* x,
                  const ExpertEntry* table, const int32_t* share, ExpertEntry* call, int32_t* ways, Jobs* jobs,
                  Encounter* encounter, Ledger* ledger, int32_t* uses, Mailbox* box, int32_t* box_ids, float* box_x,
                  int64_t top_k, int64_t experts, int64_t hidden, int64_t layer, uint8_t* by32, uint8_t* by16)) {
    start_next();
    if (block_x() > 0) {
        after_previous();
        return quantise_part(x, by32, by16, 1, hidden, element() - place_threads);
    }
    DYNAMIC_SHARED(float, e);
    const PlacedCall in = {x, table, share, call, ways, jobs, encounter, ledger, uses, box, box_ids, box_x,
                           1, top_k, experts, hidden, layer};
    place_call<true>(in, reinterpret_cast<int32_t*>(e + 2 * experts), [&](int32_t* chosen) {
        route_row(logits, ids, weights, static_cast<int>(experts), static_cast<int>(top_k), renormalise != 0, e, chosen);
    });
}

}  // namespace strata::STRATA_ISA
