// The module strata.kernels._native: the Native class, then what the other *_bind.cpp add.
// Arrays cross as addresses (integers) and sizes, checked by the Python wrappers; compute releases the interpreter lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bind.h"
#include "native.h"

#include <stdexcept>

namespace nb = nanobind;

namespace strata {

void* Scratch::reserve(size_t bytes) {
    if (bytes > bytes_) {
        const size_t rounded = (bytes + 4095) / 4096 * 4096;
        std::free(data_);
        bytes_ = 0;
        data_ = std::aligned_alloc(64, rounded);
        if (!data_) throw std::bad_alloc();
        bytes_ = rounded;
    }
    return data_;
}

namespace {

// Runs `chunks` chunks that add their number + 1 to out[chunk], `rounds` times; chunk `fail` throws. For the pool's tests.
void exercise(Native& native, int chunks, int rounds, int fail, uintptr_t out) {
    auto* cells = reinterpret_cast<int64_t*>(out);
    for (int round = 0; round < rounds; ++round)
        native.pool().parallel_for(chunks, [&](int chunk, int) {
            if (chunk >= fail && fail >= 0) throw std::runtime_error("chunk " + std::to_string(chunk) + " failed");
            cells[chunk] += chunk + 1;
        });
}

}  // namespace
}  // namespace strata

NB_MODULE(_native, m) {
    using strata::Native;
    nb::class_<Native>(m, "Native")
        .def(nb::init<int, const std::string&>(), nb::arg("threads"), nb::arg("isa"))
        .def_prop_ro("threads", [](Native& native) { return native.pool().threads(); })
        .def_prop_ro("isa", [](Native& native) { return strata::isa_name(native.isa()); })
        .def_prop_ro("distinct_experts", [](Native& native) { return native.counters().distinct_experts; })
        .def_prop_ro("expert_bytes", [](Native& native) { return native.counters().expert_bytes; })
        .def_prop_ro("product_bytes", [](Native& native) { return native.counters().product_bytes; });
    m.def("physical_cores", &strata::physical_cores);
    m.def("exercise", &strata::exercise, nb::arg("native"), nb::arg("chunks"), nb::arg("rounds"), nb::arg("fail"),
          nb::arg("out"), nb::call_guard<nb::gil_scoped_release>());
    strata::bind_products(m);
    strata::bind_layers(m);
    strata::bind_attention(m);
    strata::bind_elementwise(m);
    strata::bind_rows(m);
    strata::bind_choose(m);
    strata::bind_program(m);
}
