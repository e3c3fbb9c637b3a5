// Where each expert of a layer's call is computed, decided on the device; and the encounter with the CPU for those that
// it computes (kernels/rendezvous/gpu.py has the shapes).
//
//     place     sorts the call's distinct experts into frames (VRAM), PCIe reads and the CPU, writes the entries and
//     jobs
//               that the expert kernels work from, and publishes the CPU's part; beside that it quantises x
//     combine   waits for the CPU's part when there is one, and adds up all experts in rank order
//
// A call without CPU experts meets nobody. The wait is bounded: after `limit_ns` the call is poisoned, nothing waits
// any more, and the host finds the poison.
#pragma once

#include "placing.h"
#include "quantised_rows.h"

namespace strata::STRATA_ISA {

// One block places; dynamic shared memory: int32 [2 * (experts + rows * top_k)]. More blocks quantise x, four values a
// thread, into the layouts that are wanted.
STRATA_KERNEL_OF(place_threads, rendezvous_place,
                 (const int32_t* ids, const float* x, const ExpertEntry* table, const int32_t* share, ExpertEntry* call,
                  int32_t* ways, Jobs* jobs, Encounter* encounter, Ledger* ledger, int32_t* uses, Mailbox* box,
                  int32_t* box_ids, float* box_x, int64_t rows, int64_t top_k, int64_t experts, int64_t hidden,
                  int64_t layer, uint8_t* by32, uint8_t* by16)) {
    start_next();
    if (block_x() > 0) {
        after_previous();
        return quantise_part(x, by32, by16, rows, hidden, element() - place_threads);
    }
    DYNAMIC_SHARED(int32_t, used);
    const PlacedCall in = {x, table, share, call, ways, jobs, encounter, ledger, uses, box, box_ids, box_x,
                           rows, top_k, experts, hidden, layer};
    place_call<false>(in, used, [&](int32_t* chosen) {
        for (int i = thread_x(); i < rows * top_k; i += place_threads) chosen[i] = ids[i];
    });
}

// Looks at the device's memory that a waiting block takes before it looks over the bus itself.
constexpr int looks_at_home = 1024;

// Waits until the CPU has answered `request`; nobody waits once a call is poisoned. The bus brings a word to one block
// after the other, a microsecond each: so the first block looks there, and tells the others.
STRATA_INLINE void wait_for_answer(int64_t request, Encounter* encounter, Mailbox* box, bool first, int64_t began,
                                   int64_t limit_ns) {
    if (load_volatile(&encounter->poisoned) == 0) {
        for (int looks = 1;; ++looks) {
            const bool abroad = first || looks % looks_at_home == 0;
            if (load_volatile(abroad ? &box->reply : &encounter->answered) >= request) break;
            if (clock_ns() - began < limit_ns && load_volatile(&encounter->poisoned) == 0) continue;
            store_volatile(&encounter->poisoned, request);
            store_volatile(&box->poison, request);
            break;
        }
        fence_device();
        if (first) store_volatile(&encounter->answered, request);
    }
    fence_system();
}

// Ranks of a row that are asked for at once.
constexpr int combine_batch = 12;

struct Ranks {
    float one[combine_batch], weight[combine_batch];
    int32_t way[combine_batch];
};

// Entries from `entry` on, `count` of them: of the CPU's, what `outputs` holds is not used.
STRATA_INLINE void ask_ranks(Ranks& ranks, const float* outputs, const float* weights, const int32_t* ways, int64_t entry,
                             int64_t count, int64_t hidden, int64_t column) {
    UNROLL
    for (int k = 0; k < combine_batch; ++k) {
        const bool is = k < count;
        ranks.way[k] = is ? ways[entry + k] : by_frame;
        ranks.weight[k] = is ? weights[entry + k] : 0.0f;
        ranks.one[k] = is ? outputs[(entry + k) * hidden + column] : 0.0f;
    }
}

// One block per 256 columns (x) and row (y). outputs [rows, top_k, hidden]: what the GPU computed. own [rows, hidden]
// behind the gates strength [rows] is added last; null: nothing is.
STRATA_KERNEL(rendezvous_combine,
              (const float* outputs, const float* weights, const int32_t* ways, Encounter* encounter, Ledger* ledger,
               Mailbox* box, const float* answers, const float* own, const float* strength, float* y, int64_t top_k,
               int64_t hidden, int64_t limit_ns)) {
    in_turn();
    SHARED(int64_t, asked, 1);
    const bool first = block_x() == 0 && block_y() == 0 && thread_x() == 0;
    const int64_t began = first ? clock_ns() : 0, placed = first ? encounter->placed_ns : 0;
    if (thread_x() == 0) asked[0] = encounter->waiting;
    const int64_t column = static_cast<int64_t>(block_x()) * block_size() + thread_x(), row = block_y();
    const int64_t at = column < hidden ? column : hidden - 1;
    const float shared = own ? own[row * hidden + at] : 0.0f, opened = own ? strength[row] : 0.0f;
    Ranks ranks;
    ask_ranks(ranks, outputs, weights, ways, row * top_k, top_k, hidden, at);
    barrier();
    const int64_t request = asked[0];
    int64_t waited = 0;
    if (request != 0) {  // for all threads alike
        if (thread_x() == 0) wait_for_answer(request, encounter, box, first, first ? began : clock_ns(), limit_ns);
        if (first) waited = clock_ns() - began;
        barrier();
    }
    float sum = 0.0f;
    for (int64_t rank = 0; rank < top_k; rank += combine_batch) {
        const int64_t entry = row * top_k + rank;
        if (rank > 0) ask_ranks(ranks, outputs, weights, ways, entry, top_k - rank, hidden, at);
        UNROLL
        for (int k = 0; k < combine_batch; ++k) {
            if (ranks.way[k] == by_cpu) ranks.one[k] = load_volatile(answers + (entry + k) * hidden + at);
            if (rank + k < top_k) sum = fma(ranks.weight[k], ranks.one[k], sum);
        }
    }
    if (own) sum = fma(sigmoid(opened), shared, sum);
    if (column < hidden) y[row * hidden + column] = sum;
    if (!first) return;
    ledger->gpu_ns = began - placed;
    ledger->wait_ns = waited;
}

}  // namespace strata::STRATA_ISA
