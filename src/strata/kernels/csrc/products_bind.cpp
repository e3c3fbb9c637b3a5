// Bindings of the quantised products: linear, experts, embed, activate.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bank.h"
#include "bind.h"
#include "layers_activate.h"
#include "native.h"
#include "products.h"
#include "products_probe.h"

namespace nb = nanobind;

namespace strata {
namespace {

void linear(Native& native, uintptr_t x, int64_t rows, int64_t cols, const std::vector<WeightTuple>& weights,
            const std::vector<uintptr_t>& outputs) {
    std::vector<WeightView> views;
    std::vector<float*> to;
    for (const WeightTuple& weight : weights) views.push_back(view_of(weight));
    for (uintptr_t output : outputs) to.push_back(reinterpret_cast<float*>(output));
    nb::gil_scoped_release released;
    native.run("linear", [=](Native& n) {
        std::lock_guard<std::mutex> alone(n.busy());
        for (const WeightView& view : views) n.counters().product_bytes += bytes_of(n, view);
        pick_product_kernels(n.isa())
            .linear(n.context(), {reinterpret_cast<const float*>(x), rows, cols, static_cast<int>(views.size()),
                                  views.data(), to.data()});
    });
}

void experts(Native& native, const Bank& bank, uintptr_t x, int64_t rows, uintptr_t ids, uintptr_t factors, int top_k,
             uintptr_t y) {
    const Bank* const kept = &bank;
    nb::gil_scoped_release released;
    native.run("experts", [=](Native& n) {
        run_experts(n, *kept, {reinterpret_cast<const float*>(x), rows, reinterpret_cast<const int32_t*>(ids), top_k},
                    reinterpret_cast<const float*>(factors), reinterpret_cast<float*>(y));
    });
}

// Rows of a table that lies in shards, one after the other.
void embed(Native& native, const std::vector<WeightTuple>& shards, uintptr_t ids, int64_t count, uintptr_t y) {
    std::vector<WeightView> views;
    int64_t total = 0;
    for (const WeightTuple& shard : shards) {
        views.push_back(view_of(shard));
        total += views.back().rows;
    }
    nb::gil_scoped_release released;
    native.run("embed", [=](Native& n) {
        const auto* rows = reinterpret_cast<const int64_t*>(ids);
        for (int64_t i = 0; i < count; ++i)
            if (rows[i] < 0 || rows[i] >= total)
                throw std::out_of_range("row " + std::to_string(rows[i]) + " of a table of " + std::to_string(total) +
                                        " rows");
        const ProductKernels& kernels = pick_product_kernels(n.isa());
        if (views.size() == 1) {
            kernels.embed(n.context(), views[0], rows, count, reinterpret_cast<float*>(y));
            return;
        }
        for (int64_t i = 0; i < count; ++i) {
            int64_t row = rows[i];
            size_t shard = 0;
            while (row >= views[shard].rows) row -= views[shard++].rows;
            kernels.embed(n.context(), views[shard], &row, 1, reinterpret_cast<float*>(y) + i * views[shard].cols);
        }
    });
}

void activate(Native& native, int kind, uintptr_t x, float divisor, float factor, uintptr_t y, int64_t count) {
    native.run("activate", [=](Native& n) {
        pick_activate_kernels(n.isa())
            .activate(n.pool(), kind, reinterpret_cast<const float*>(x), divisor, factor, reinterpret_cast<float*>(y),
                      count);
    });
}

// benchmarks/probe_products.py: kind "plain" (Q4_K and IQ3_S) or "read".
void probe(Native& native, const std::string& kind, const WeightTuple& weight, uintptr_t x, uintptr_t y) {
    const WeightView view = view_of(weight);
    const ProbeKernels& kernels = pick_probe_kernels(native.isa());
    const std::string name = pick_product_kernels(native.isa()).formats[view.format].name;
    const auto call = kind == "read"     ? kernels.read
                      : name == "Q4_K"  ? kernels.plain_q4_k
                      : name == "IQ3_S" ? kernels.plain_iq3_s
                                        : nullptr;
    if (!call) throw std::invalid_argument("no plain product of " + name + " for " + isa_name(native.isa()));
    nb::gil_scoped_release released;
    std::lock_guard<std::mutex> alone(native.busy());
    call(native.context(), view, reinterpret_cast<const float*>(x), reinterpret_cast<float*>(y));
}

// (name, block, bytes, sub, minima) of every format code.
std::vector<std::tuple<std::string, int, int, int, bool>> format_table() {
    std::vector<std::tuple<std::string, int, int, int, bool>> table;
    for (int code = 0; code < format_count; ++code) {
        const Format& format = pick_product_kernels(Isa::portable).formats[code];
        table.emplace_back(format.name, format.block, format.bytes, format.sub, format.minima);
    }
    return table;
}

}  // namespace

void bind_products(nb::module_& m) {
    nb::class_<Bank>(m, "Bank")
        .def(nb::init<const std::vector<WeightTuple>&, const std::vector<WeightTuple>&,
                      const std::vector<WeightTuple>&>())
        .def("uses", &Bank::uses);
    m.def("format_table", &format_table);
    m.def("probe", &probe);
    m.def("linear", &linear);
    m.def("experts", &experts);
    m.def("embed", &embed);
    m.def("activate", &activate, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace strata
