// Where each expert of a layer's call is computed, decided on the device; and the encounter with the CPU for those that it
// computes (kernels/rendezvous/gpu.py has the shapes).
//
//     place     one block: sorts the call's distinct experts into frames (VRAM), PCIe reads and the CPU, writes the
//               entries that the expert kernels work from, and publishes the CPU's part
//     combine   waits for the CPU's part when there is one, and adds up all experts in rank order
//
// A call without CPU experts meets nobody. The wait is bounded: after `limit_ns` the call is poisoned, nothing waits any
// more, and the host finds the poison.
#pragma once

#include "../mailbox.h"
#include "clock.h"
#include "expert_table.h"
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

// The tier of an entry of `table` says where its bytes lie; in `call` it is 0 for what the GPU computes. `share[m]` of m
// missing experts go over PCIe, as far as they are pinned. Dynamic shared memory: int32 [2 * experts].
STRATA_KERNEL_OF(place_threads, rendezvous_place,
                 (const int32_t* ids, const float* x, const ExpertEntry* table, const int32_t* share, ExpertEntry* call,
                  int32_t* ways, Encounter* encounter, Ledger* ledger, int32_t* uses, Mailbox* box, int32_t* box_ids,
                  float* box_x, int64_t rows, int64_t top_k, int64_t experts, int64_t hidden, int64_t layer)) {
    in_turn();
    DYNAMIC_SHARED(int32_t, used);
    int32_t* const way = used + experts;
    SHARED(int32_t, totals, 7);  // distinct by way, entries by way, missing
    SHARED(int32_t, pinned, place_threads / 32);
    const int me = thread_x();
    const int64_t entries = rows * top_k;

    // `way` holds the tiers first: they are asked for before it is known which are needed.
    for (int64_t e = me; e < experts; e += place_threads) {
        used[e] = 0;
        way[e] = tier_of(table[e]);
    }
    if (me < 7) totals[me] = 0;
    // Where a thread counts up in the ledger: a way's experts, a way's entries, the calls.
    int64_t* const counter = me < 3 ? ledger->experts + me : me < 6 ? ledger->entries + (me - 3) : &ledger->calls;
    const int64_t counted = me < 7 ? *counter : 0;
    barrier();
    for (int64_t i = me; i < entries; i += place_threads) atomic_add(used + ids[i], 1);
    barrier();
    for (int64_t e = me; e < experts; e += place_threads)
        if (used[e] != 0 && way[e] != in_frame) atomic_add(totals + 6, 1);
    barrier();

    const int32_t wanted = share[totals[6]];
    int32_t earlier = 0;  // pinned misses before this round's experts
    for (int64_t base = 0; base < experts; base += place_threads) {
        const int64_t e = base + me;
        const bool here = e < experts && used[e] != 0;
        const bool candidate = here && way[e] == in_pinned;
        const uint32_t candidates = ballot(candidate);
        if (lane() == 0) pinned[warp()] = count_bits(candidates);
        barrier();
        int32_t rank = earlier + count_bits(candidates & ((1u << lane()) - 1));
        for (int w = 0; w < place_threads / 32; ++w) {
            if (w < warp()) rank += pinned[w];
            earlier += pinned[w];
        }
        if (here) {
            const int32_t found = way[e] == in_frame ? by_frame : candidate && rank < wanted ? by_pcie : by_cpu;
            way[e] = found;
            uses[e] += used[e];
            atomic_add(totals + found, 1);
            atomic_add(totals + 3 + found, used[e]);
            ExpertEntry entry = table[e];
            entry.formats = (entry.formats & 0xffffff) | (found == by_cpu ? int64_t{in_host} << 24 : 0);
            call[e] = entry;
        }
        barrier();
    }

    const bool asks = totals[by_cpu] != 0;
    for (int64_t i = me; i < entries; i += place_threads) {
        const bool cpu = way[ids[i]] == by_cpu;
        ways[i] = way[ids[i]];
        if (asks) box_ids[i] = cpu ? ids[i] : -1;
    }
    if (asks) {
        publish_rows(x, box_x, rows * hidden);
        fence_system();
        barrier();
    }
    if (me < 7) *counter = counted + (me < 6 ? totals[me] : 1);
    if (me < 3) ledger->last[me] = totals[me];
    if (me != 0) return;
    encounter->waiting = 0;
    if (asks) {
        encounter->requests += 1;
        encounter->waiting = encounter->requests;
        box->layer = layer;
        box->rows = rows;
        box->top_k = top_k;
        fence_system();
        store_volatile(&box->request, encounter->requests);
    }
    encounter->placed_ns = clock_ns();
}

// One block per 256 columns (x) and row (y). outputs [rows, top_k, hidden]: what the GPU computed.
STRATA_KERNEL(rendezvous_combine,
              (const float* outputs, const float* weights, const int32_t* ways, Encounter* encounter, Ledger* ledger,
               Mailbox* box, const float* answers, float* y, int64_t top_k, int64_t hidden, int64_t limit_ns)) {
    in_turn();
    SHARED(int64_t, request, 1);
    const bool first = block_x() == 0 && block_y() == 0;
    if (thread_x() == 0) {
        request[0] = encounter->waiting;
        const int64_t began = clock_ns();
        if (first) {
            ledger->gpu_ns = began - encounter->placed_ns;
            ledger->wait_ns = 0;
        }
        if (request[0] != 0 && load_volatile(&encounter->poisoned) == 0) {
            while (load_volatile(&box->reply) < request[0]) {
                if (clock_ns() - began < limit_ns && load_volatile(&encounter->poisoned) == 0) continue;
                store_volatile(&encounter->poisoned, request[0]);
                store_volatile(&box->poison, request[0]);
                break;
            }
            fence_system();
            if (first) ledger->wait_ns = clock_ns() - began;
        }
    }
    barrier();
    const int64_t column = static_cast<int64_t>(block_x()) * block_size() + thread_x();
    if (column >= hidden) return;
    const int64_t row = block_y();
    constexpr int batch = 8;  // ranks that are asked for at once; of the CPU's, what `outputs` holds is not used
    float sum = 0.0f;
    for (int64_t rank = 0; rank < top_k; rank += batch) {
        float one[batch], weight[batch];
        int32_t way[batch];
        const int64_t entry = row * top_k + rank, at = entry * hidden + column;
        UNROLL
        for (int k = 0; k < batch; ++k) {
            const bool is = rank + k < top_k;
            way[k] = is ? ways[entry + k] : by_frame;
            weight[k] = is ? weights[entry + k] : 0.0f;
            one[k] = is ? outputs[at + k * hidden] : 0.0f;
        }
        UNROLL
        for (int k = 0; k < batch; ++k) {
            if (way[k] == by_cpu) one[k] = load_volatile(answers + at + k * hidden);
            if (rank + k < top_k) sum = fma(weight[k], one[k], sum);
        }
    }
    y[row * hidden + column] = sum;
}

}  // namespace strata::STRATA_ISA
