// Where each expert of a layer's call is computed, decided on the device by one block of threads
// (kernels/rendezvous/gpu.py has the shapes). It sorts the call's distinct experts into frames (VRAM), PCIe reads and
// the CPU, writes the entries and jobs that the expert kernels work from, and publishes the CPU's part.
#pragma once

#include "../mailbox.h"
#include "clock.h"
#include "grouping.h"
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

// A call to be placed; `x` are its rows. The tier of an entry of `table` says where its bytes lie; in `call` it is 0
// for what the GPU computes, and `jobs` has the pairs of those. `share[m]` of m missing experts go over PCIe, as far as
// they are pinned.
struct PlacedCall {
    const float* x;
    const ExpertEntry* table;
    const int32_t* share;
    ExpertEntry* call;
    int32_t* ways;
    Jobs* jobs;
    Encounter* encounter;
    Ledger* ledger;
    int32_t* uses;
    Mailbox* box;
    int32_t* box_ids;
    float* box_x;
    int64_t rows, top_k, experts, hidden, layer;
};

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
        KEEP_ROLLED
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
STRATA_INLINE void ask_cpu(const PlacedCall& in, const Placing& p, const int32_t* chosen) {
    KEEP_ROLLED
    for (int64_t i = thread_x(); i < in.rows * in.top_k; i += place_threads)
        in.box_ids[i] = p.way[chosen[i]] == by_cpu ? chosen[i] : -1;
    publish_rows(in.x, in.box_x, in.rows * in.hidden);
    fence_system();
    barrier();
    if (thread_x() != 0) return;
    in.encounter->requests += 1;
    in.encounter->waiting = in.encounter->requests;
    in.box->layer = in.layer;
    in.box->rows = in.rows;
    in.box->top_k = in.top_k;
    fence_system();
    store_volatile(&in.box->request, in.encounter->requests);
}

// The job of expert `e`, which one of the pairs `chosen` [entries] asks for: as many jobs are before it as pairs of the
// device's.
STRATA_INLINE void put_job(const PlacedCall& in, const ExpertEntry& entry, int32_t e, const int32_t* chosen, const int32_t* way) {
    int32_t pair = 0, job = 0;
    KEEP_ROLLED
    for (; chosen[pair] != e; ++pair) job += way[chosen[pair]] != by_cpu;
    in.jobs->job[job] = job_of(entry, e, 1, pair, pair);
}

// Places a call; `one_row`: of one row, which chose each expert once. At the kernel's turn `choose(chosen)` writes the
// ids of all rows * top_k entries to `chosen`, by any threads of the block, which begins with its table before. `used`:
// int32 [2 * (experts + rows * top_k)] of shared memory.
template <bool one_row, class Choose>
STRATA_INLINE void place_call(const PlacedCall& in, int32_t* used, const Choose& choose) {
    const int64_t experts = in.experts;
    int32_t *const way = used + experts, *const chosen = way + experts;
    SHARED(int32_t, totals, 7);
    SHARED(int32_t, pinned, place_threads / 32);
    const int me = thread_x(), entries = static_cast<int>(in.rows * in.top_k);
    int32_t* const expert = chosen + entries;

    ExpertEntry held[place_held];  // the host alone writes the table, between steps
    UNROLL
    for (int k = 0; k < place_held; ++k) {
        const int64_t e = me + k * place_threads;
        if (e < experts) held[k] = in.table[e];
        if (e < experts) used[e] = 0, way[e] = tier_of(held[k]);
    }
    KEEP_ROLLED
    for (int64_t e = me + place_held * place_threads; e < experts; e += place_threads) used[e] = 0, way[e] = tier_of(in.table[e]);
    if (me < 7) totals[me] = 0;
    after_previous();
    const int64_t now = me == place_threads - 1 ? clock_ns() : 0;
    // Where a thread counts up in the ledger: a way's experts, a way's entries, the calls.
    int64_t* const counter = me < 3 ? in.ledger->experts + me : me < 6 ? in.ledger->entries + (me - 3) : &in.ledger->calls;
    const int64_t counted = me < 7 ? *counter : 0;
    choose(chosen);
    barrier();
    KEEP_ROLLED
    for (int i = me; i < entries; i += place_threads) {
        const bool first = atomic_add(used + chosen[i], 1) == 0;
        if (first && way[chosen[i]] != in_frame) atomic_add(totals + 6, 1);
    }
    barrier();

    Placing p = {used, way, totals, pinned, totals[6] != 0 ? in.share[totals[6]] : 0, 0};
    UNROLL
    for (int k = 0; k < place_held; ++k) {
        const int64_t e = me + k * place_threads;
        if (k * place_threads < experts) place_expert(p, e, e < experts, &held[k], in.call, in.uses);
    }
    KEEP_ROLLED
    for (int64_t base = place_held * place_threads; base < experts; base += place_threads)
        place_expert(p, base + me, base + me < experts, in.table + base + me, in.call, in.uses);
    barrier();

    if (me == 0) in.encounter->waiting = 0;
    if (totals[by_cpu] != 0) ask_cpu(in, p, chosen);
    if (me < 7) *counter = counted + (me < 6 ? totals[me] : 1);
    if (me < 3) in.ledger->last[me] = totals[me];
    KEEP_ROLLED
    for (int i = me; i < entries; i += place_threads) {
        const int32_t found = way[chosen[i]];
        in.ways[i] = found;
        if (!one_row) expert[i] = found == by_cpu ? -1 : chosen[i];
    }
    if constexpr (one_row) {  // who holds an entry writes its job: nobody waits for the table again
        UNROLL
        for (int k = 0; k < place_held; ++k) {
            const int32_t e = me + k * place_threads;
            if (e < experts && used[e] != 0 && way[e] != by_cpu) put_job(in, held[k], e, chosen, way);
        }
        KEEP_ROLLED
        for (int32_t e = me + place_held * place_threads; e < experts; e += place_threads)
            if (used[e] != 0 && way[e] != by_cpu) put_job(in, in.table[e], e, chosen, way);
        if (me == 0) in.jobs->count = entries - totals[3 + by_cpu];
    } else {
        barrier();
        write_jobs(expert, reinterpret_cast<uint32_t*>(used), entries, in.table, in.jobs);
    }
    if (me == place_threads - 1) in.encounter->placed_ns = now;
}

}  // namespace strata::STRATA_ISA
