// Bindings of attention, the choice of blocks and the cache.
//
// Sizes and dtypes are checked by the Python wrappers; what lies inside index arrays (slots, positions, page tables) is
// checked here, before anything is written.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "bind.h"
#include "layers_attention.h"
#include "layers_cache.h"
#include "layers_select.h"
#include "layers_small.h"
#include "native.h"

namespace nb = nanobind;

namespace strata {
namespace {

template <class T>
T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

// A paged plane as Python names it: (data, table, pages, page, slots, pages per slot, heads,
// values per head, type, scales).
struct PlaneArgs {
    Plane plane;
    int64_t pages, slots;

    [[noreturn]] static void refuse(int64_t slot, const std::string& what) {
        throw std::out_of_range("slot " + std::to_string(slot) + ": " + what);
    }

    void check_slot(int64_t slot) const {
        if (slot < 0 || slot >= slots) refuse(slot, "expected 0 .. " + std::to_string(slots - 1));
    }

    // The place of an entry's page in the table, checked.
    int32_t page_of(int64_t slot, int64_t entry) const {
        if (entry < 0 || entry >= plane.pages_per_slot * plane.page)
            refuse(slot, "entry " + std::to_string(entry) + " is beyond its page table of " +
                             std::to_string(plane.pages_per_slot * plane.page) + " entries");
        const int32_t page = plane.table[slot * plane.pages_per_slot + entry / plane.page];
        if (page < 0 || page >= pages)
            refuse(slot, "page " + std::to_string(page) + " in its table is outside 0 .. " + std::to_string(pages - 1));
        return page;
    }

    // Entries 0 .. n - 1 of a slot lie on pages.
    void check_first(int64_t slot, int64_t n) const {
        if (n > 0) page_of(slot, n - 1);
        for (int64_t entry = 0; entry < n; entry += plane.page) page_of(slot, entry);
    }
};

PlaneArgs plane_of(const nb::tuple& t) {
    const Plane plane = {at<const void>(nb::cast<uintptr_t>(t[0])),
                         at<const int32_t>(nb::cast<uintptr_t>(t[1])),
                         nb::cast<int64_t>(t[3]),
                         nb::cast<int64_t>(t[5]),
                         nb::cast<int64_t>(t[6]),
                         nb::cast<int64_t>(t[7]),
                         static_cast<KvType>(nb::cast<int64_t>(t[8])),
                         at<const float>(nb::cast<uintptr_t>(t[9]))};
    return {plane, nb::cast<int64_t>(t[2]), nb::cast<int64_t>(t[4])};
}

// Every row's slot is there and its position is not negative; `seen(row)` gives the entries it reads.
template <class Seen>
int64_t check_rows(const PlaneArgs& plane, const int32_t* slot, const int32_t* position, int64_t rows, Seen seen) {
    int64_t longest = 0, run = 0;
    for (int64_t t = 0; t < rows; ++t) {
        plane.check_slot(slot[t]);
        if (position[t] < 0) PlaneArgs::refuse(slot[t], "position " + std::to_string(position[t]) + " is negative");
        run = t && slot[t] == slot[t - 1] ? std::max(run, seen(t)) : seen(t);
        if (t + 1 == rows || slot[t + 1] != slot[t]) plane.check_first(slot[t], run);
        longest = std::max(longest, run);
    }
    return longest;
}

float* reserve(Native& native, int64_t floats) {
    return static_cast<float*>(native.shared_scratch().reserve(static_cast<size_t>(floats) * sizeof(float)));
}

int64_t count_bundles(const int32_t* slot, int64_t rows, int64_t rows_per_bundle) {
    int64_t bundles = 0, held = 0;
    for (int64_t t = 0; t < rows; ++t) {
        held = t && slot[t] == slot[t - 1] && held < rows_per_bundle ? held + 1 : 1;
        bundles += held == 1;
    }
    return bundles;
}

// Up to 128 queries pass over the cache together: their scores of a block, 128 KiB, stay in the second cache. Blocks
// are shared out when units are fewer than four a thread and the work is worth a second fork (4 M multiply-adds).
AttentionPlan plan_attention(const AttentionCall& call, int64_t longest, int64_t threads) {
    const int64_t blocks = (longest + kBlock - 1) / kBlock, work = 2 * call.rows * call.heads * call.dim * longest;
    AttentionPlan plan = {call.listed ? 1 : std::max<int64_t>(1, 128 / call.group()), 0, blocks, 0};
    plan.bundles = count_bundles(call.slot, call.rows, plan.rows_per_bundle);
    if (threads == 1 || plan.bundles * call.kv_heads >= 4 * threads) return plan;
    if (blocks > 1 && work >= 4 << 20) {
        const int64_t units = plan.bundles * call.kv_heads;
        const int64_t fit = (2 << 20) / (units * partial_floats(plan.rows_per_bundle * call.group(), call.dim));
        plan.blocks_at_once = std::min(blocks, std::max(fit, (2 * threads + units - 1) / units));
        return plan;
    }
    const int64_t shared = std::max<int64_t>(1, call.rows * call.kv_heads / (4 * threads));
    plan.rows_per_bundle = std::min(plan.rows_per_bundle, shared);
    plan.bundles = count_bundles(call.slot, call.rows, plan.rows_per_bundle);
    return plan;
}

void attend(Native& native, const AttentionCall& call, int64_t longest) {
    const int64_t threads = native.pool().threads();
    const AttentionPlan plan = plan_attention(call, longest, threads);
    std::lock_guard<std::mutex> lock(native.busy());
    pick_attention_kernels(native.isa())
        .attend(native.pool(), call, plan, reserve(native, attention_floats(call, plan, threads)));
}

void attention(Native& native, uintptr_t q, uintptr_t out, const nb::tuple& keys, const nb::tuple& values,
               uintptr_t slot, uintptr_t position, int64_t rows, int64_t heads, int64_t kv_heads, int64_t dim,
               float scale) {
    const PlaneArgs k = plane_of(keys), v = plane_of(values);
    const AttentionCall call = {at<const float>(q), at<float>(out), k.plane, v.plane, at<const int32_t>(slot),
                                at<const int32_t>(position), nullptr, nullptr, 0, rows, heads, kv_heads, dim, scale};
    nb::gil_scoped_release free;
    native.run("attention", [=](Native& n) {
        auto seen = [&](int64_t t) { return static_cast<int64_t>(call.position[t]) + 1; };
        const int64_t longest = check_rows(k, call.slot, call.position, rows, seen);
        check_rows(v, call.slot, call.position, rows, seen);
        attend(n, call, longest);
    });
}

void sparse_attention(Native& native, uintptr_t q, uintptr_t out, const nb::tuple& keys, const nb::tuple& values,
                      uintptr_t slot, uintptr_t positions, uintptr_t count, int64_t list_width, int64_t rows,
                      int64_t heads, int64_t kv_heads, int64_t dim, float scale) {
    const PlaneArgs k = plane_of(keys), v = plane_of(values);
    const AttentionCall call = {at<const float>(q), at<float>(out), k.plane, v.plane, at<const int32_t>(slot), nullptr,
                                at<const int32_t>(positions), at<const int32_t>(count), list_width, rows, heads,
                                kv_heads, dim, scale};
    nb::gil_scoped_release free;
    native.run("sparse_attention", [=](Native& n) {
        int64_t longest = 0;
        for (int64_t t = 0; t < rows; ++t) {
            k.check_slot(call.slot[t]);
            v.check_slot(call.slot[t]);
            if (call.count[t] < 0 || call.count[t] > list_width)
                throw std::out_of_range("row " + std::to_string(t) + ": a count of " + std::to_string(call.count[t]) +
                                        " in a list of " + std::to_string(list_width));
            const int32_t* listed = call.listed + t * list_width;
            int32_t least = 0, most = -1;
            for (int64_t j = 0; j < call.count[t]; ++j) {
                least = std::min(least, listed[j]);
                most = std::max(most, listed[j]);
            }
            if (least < 0) k.page_of(call.slot[t], least);
            k.check_first(call.slot[t], static_cast<int64_t>(most) + 1);
            v.check_first(call.slot[t], static_cast<int64_t>(most) + 1);
            longest = std::max(longest, static_cast<int64_t>(call.count[t]));
        }
        attend(n, call, longest);
    });
}

// Rows are taken in groups whose scores fit 64 MiB.
void select(Native& native, const PlaneArgs& keys, SelectCall call) {
    const int64_t longest = check_rows(keys, call.slot, call.position, call.rows, [&](int64_t t) {
        return (static_cast<int64_t>(call.position[t]) + 1) / call.ratio;
    });
    const int64_t stride = (longest + 15) / 16 * 16;
    const int64_t at_once = std::max<int64_t>(1, (16 << 20) / (stride + kSelectCounts));
    std::lock_guard<std::mutex> lock(native.busy());
    for (int64_t left = call.rows; left > 0; left -= at_once) {
        call.rows = std::min(left, at_once);
        pick_select_kernels(native.isa()).select(native.pool(), call, stride,
                                                 reserve(native, call.rows * (stride + kSelectCounts)));
        call.q += call.rows * call.heads * call.dim;
        call.slot += call.rows;
        call.position += call.rows;
        call.positions += call.rows * (call.budget + 1) * call.ratio;
        call.count += call.rows;
    }
}

void select_blocks(Native& native, uintptr_t q, const nb::tuple& keys, uintptr_t slot, uintptr_t position, int64_t rows,
                   int64_t heads, int64_t dim, int64_t ratio, int64_t budget, uintptr_t positions, uintptr_t count) {
    const PlaneArgs k = plane_of(keys);
    const SelectCall call = {at<const float>(q), k.plane, at<const int32_t>(slot), at<const int32_t>(position), rows,
                             heads, dim, ratio, budget, at<int32_t>(positions), at<int32_t>(count)};
    nb::gil_scoped_release free;
    native.run("select_blocks", [=](Native& n) { select(n, k, call); });
}

void cache_write(Native& native, const nb::tuple& plane, uintptr_t slots, uintptr_t entries, uintptr_t x, int64_t n) {
    const PlaneArgs p = plane_of(plane);
    nb::gil_scoped_release free;
    native.run("cache_write", [=](Native& owner) {
        const auto* slot = at<const int32_t>(slots);
        const auto* entry = at<const int32_t>(entries);
        for (int64_t i = 0; i < n; ++i) {
            p.check_slot(slot[i]);
            if (entry[i] != kNoEntry) p.page_of(slot[i], entry[i]);
        }
        pick_cache_kernels(owner.isa()).write(owner.pool(), p.plane, slot, entry, at<const float>(x), n);
    });
}

void pool_blocks(Native& native, const nb::tuple& raw, uintptr_t slots, uintptr_t blocks, int64_t n, int64_t ratio,
                 uintptr_t out) {
    const PlaneArgs p = plane_of(raw);
    nb::gil_scoped_release free;
    native.run("pool_blocks", [=](Native& owner) {
        for (int64_t i = 0; i < n; ++i) {
            const int64_t slot = at<const int32_t>(slots)[i], block = at<const int32_t>(blocks)[i];
            p.check_slot(slot);
            for (int64_t r = 0; r < ratio && block != kNoEntry; ++r) p.page_of(slot, block * ratio + r);
        }
        pick_small_kernels(owner.isa())
            .pool_blocks(owner.pool(), p.plane, at<const int32_t>(slots), at<const int32_t>(blocks), n, ratio,
                         at<float>(out));
    });
}

}  // namespace

void bind_attention(nb::module_& m) {
    m.def("attention", &attention);
    m.def("sparse_attention", &sparse_attention);
    m.def("select_blocks", &select_blocks);
    m.def("cache_write", &cache_write);
    m.def("pool_blocks", &pool_blocks);
}

}  // namespace strata
