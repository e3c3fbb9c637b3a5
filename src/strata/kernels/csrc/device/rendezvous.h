// Where each expert of a layer's call is computed, decided on the device; and the encounter with the CPU for those that it
// computes (kernels/rendezvous/gpu.py has the shapes).
//
//     place     sorts the call's distinct experts into frames (VRAM), PCIe reads and the CPU, writes the entries and jobs
//               that the expert kernels work from, and publishes the CPU's part; beside that it quantises x
//     combine   waits for the CPU's part when there is one, and adds up all experts in rank order
//
// A call without CPU experts meets nobody. The wait is bounded: after `limit_ns` the call is poisoned, nothing waits any
// more, and the host finds the poison.
#pragma once

#include "../mailbox.h"
#include "clock.h"
#include "grouping.h"
#include "quantised_rows.h"
#include "small.h"

namespace strata::STRATA_ISA {

enum Tier : int32_t { in_frame = 0, in_pinned = 1, in_host = 2 };
enum Way : int32_t { by_frame = 0, by_pcie = 1, by_cpu = 2 };

// Device memory that all layers of a step share.
struct Encounter {
    int64_t requests;  // asked so far
    int64_t waiting;   // the request that this layer's combine waits for, or 0
    int64_t poisoned;
    int64_t placed_ns;
    int64_t answered;  // the last request whose answer a block of threads has seen
};

// Per layer, read by the host between steps. The first six count up.
struct Ledger {
    int64_t entries[3];  // (row, rank) pairs by way
    int64_t experts[3];  // distinct experts by way
    int64_t last[3];     // of the last call
    int64_t gpu_ns;      // of the last call: from place until all that the GPU computes was there
    int64_t wait_ns;     // of the last call: how long it waited for the CPU after that
    int64_t calls;
};

STRATA_INLINE void publish_rows(const float* x, float* to, int64_t count) {
    if (count % 4 == 0) {
        for (int64_t i = thread_x(); i < count / 4; i += block_size())
            reinterpret_cast<Words4*>(to)[i] = load16(x + 4 * i);
    } else {
        for (int64_t i = thread_x(); i < count; i += block_size()) to[i] = x[i];
    }
}

constexpr int place_threads = 256;
constexpr int place_held = 2;  // entries of the table that a thread asks for before it knows whether they are used

// What the threads of `place` share.
struct Placing {
    int32_t* used;    // [experts] entries of the call
    int32_t* way;     // [experts] the tier of each, then its way
    int32_t* totals;  // [7] distinct by way, entries by way, missing
    int32_t* pinned;  // [place_threads / 32]
    int32_t wanted;   // pinned misses that go over PCIe
    int32_t earlier;  // pinned misses among the experts before
};

// Decides for expert `e`, this thread's, of a round of place_threads experts.
STRATA_INLINE void place_expert(Placing& p, int64_t e, bool exists, const ExpertEntry* entry, ExpertEntry* call, int32_t* uses) {
    const bool here = exists && p.used[e] != 0, candidate = here && p.way[e] == in_pinned;
    int32_t rank = p.earlier;
    if (p.wanted != 0) {  // for all threads alike
        const uint32_t candidates = ballot(candidate);
        if (lane() == 0) p.pinned[warp()] = count_bits(candidates);
        barrier();
        rank += count_bits(candidates & ((1u << lane()) - 1));
        for (int w = 0; w < place_threads / 32; ++w) {
            if (w < warp()) rank += p.pinned[w];
            p.earlier += p.pinned[w];
        }
        barrier();
    }
    if (!here) return;
    const int32_t found = p.way[e] == in_frame ? by_frame : candidate && rank < p.wanted ? by_pcie : by_cpu;
    p.way[e] = found;
    atomic_add(uses + e, p.used[e]);
    atomic_add(p.totals + found, 1);
    atomic_add(p.totals + 3 + found, p.used[e]);
    ExpertEntry placed = *entry;
    placed.formats = (placed.formats & 0xffffff) | (found == by_cpu ? int64_t{in_host} << 24 : 0);
    call[e] = placed;
}

// Leaves the CPU the rows and its entries of the call.
STRATA_INLINE void ask_cpu(const Placing& p, const int32_t* chosen, const float* x, Encounter* encounter, Mailbox* box,
                           int32_t* box_ids, float* box_x, int64_t rows, int64_t top_k, int64_t hidden, int64_t layer) {
    for (int64_t i = thread_x(); i < rows * top_k; i += place_threads)
        box_ids[i] = p.way[chosen[i]] == by_cpu ? chosen[i] : -1;
    publish_rows(x, box_x, rows * hidden);
    fence_system();
    barrier();
    if (thread_x() != 0) return;
    encounter->requests += 1;
    encounter->waiting = encounter->requests;
    box->layer = layer;
    box->rows = rows;
    box->top_k = top_k;
    fence_system();
    store_volatile(&box->request, encounter->requests);
}

// The tier of an entry of `table` says where its bytes lie; in `call` it is 0 for what the GPU computes, and `jobs` has
// the pairs of those. `share[m]` of m missing experts go over PCIe, as far as they are pinned. One block does that; dynamic shared
// memory: int32 [2 * (experts + rows * top_k)]. More blocks quantise x, four values a thread, into the layouts that are wanted.
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
    int32_t *const way = used + experts, *const chosen = way + experts;
    SHARED(int32_t, totals, 7);
    SHARED(int32_t, pinned, place_threads / 32);
    const int me = thread_x(), entries = static_cast<int>(rows * top_k);
    int32_t* const expert = chosen + entries;

    ExpertEntry held[place_held];  // the host alone writes the table, between steps
    UNROLL
    for (int k = 0; k < place_held; ++k) {
        const int64_t e = me + k * place_threads;
        if (e < experts) held[k] = table[e];
        if (e < experts) used[e] = 0, way[e] = tier_of(held[k]);
    }
    for (int64_t e = me + place_held * place_threads; e < experts; e += place_threads) used[e] = 0, way[e] = tier_of(table[e]);
    if (me < 7) totals[me] = 0;
    after_previous();
    const int64_t now = me == place_threads - 1 ? clock_ns() : 0;
    // Where a thread counts up in the ledger: a way's experts, a way's entries, the calls.
    int64_t* const counter = me < 3 ? ledger->experts + me : me < 6 ? ledger->entries + (me - 3) : &ledger->calls;
    const int64_t counted = me < 7 ? *counter : 0;
    for (int i = me; i < entries; i += place_threads) chosen[i] = ids[i];
    barrier();
    for (int i = me; i < entries; i += place_threads) {
        const bool first = atomic_add(used + chosen[i], 1) == 0;
        if (first && way[chosen[i]] != in_frame) atomic_add(totals + 6, 1);
    }
    barrier();

    Placing p = {used, way, totals, pinned, totals[6] != 0 ? share[totals[6]] : 0, 0};
    UNROLL
    for (int k = 0; k < place_held; ++k) {
        const int64_t e = me + k * place_threads;
        if (k * place_threads < experts) place_expert(p, e, e < experts, &held[k], call, uses);
    }
    for (int64_t base = place_held * place_threads; base < experts; base += place_threads)
        place_expert(p, base + me, base + me < experts, table + base + me, call, uses);
    barrier();

    if (me == 0) encounter->waiting = 0;
    if (totals[by_cpu] != 0) ask_cpu(p, chosen, x, encounter, box, box_ids, box_x, rows, top_k, hidden, layer);
    if (me < 7) *counter = counted + (me < 6 ? totals[me] : 1);
    if (me < 3) ledger->last[me] = totals[me];
    for (int i = me; i < entries; i += place_threads) {
        const int32_t found = way[chosen[i]];
        ways[i] = found;
        expert[i] = found == by_cpu ? -1 : chosen[i];
    }
    barrier();
    write_jobs(expert, reinterpret_cast<uint32_t*>(used), entries, jobs);
    if (me == place_threads - 1) encounter->placed_ns = now;
}

// Looks at the device's memory that a waiting block takes before it looks over the bus itself.
constexpr int looks_at_home = 1024;

// Waits until the CPU has answered `request`; nobody waits once a call is poisoned. The bus brings a word to one block after the
// other, a microsecond each: so the first block looks there, and tells the others.
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

// One block per 256 columns (x) and row (y). outputs [rows, top_k, hidden]: what the GPU computed. own [rows, hidden] behind the
// gates strength [rows] is added last; null: nothing is.
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
