// The module strata.kernels._native: the Native class, then what the other *_bind.cpp add.
// Arrays cross as addresses (integers) and sizes, checked by the Python wrappers; compute releases the interpreter
// lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bind.h"
#include "native.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

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

// Runs `chunks` chunks that add their number + 1 to out[chunk], `rounds` times; chunk `fail` throws. For the pool's
// tests.
void exercise(Native& native, int chunks, int rounds, int fail, uintptr_t out) {
    auto* cells = reinterpret_cast<int64_t*>(out);
    for (int round = 0; round < rounds; ++round)
        native.pool().parallel_for(chunks, [&](int chunk, int) {
            if (chunk >= fail && fail >= 0) throw std::runtime_error("chunk " + std::to_string(chunk) + " failed");
            cells[chunk] += chunk + 1;
        });
}

// `rounds` jobs with `pause_us` of sleep before each, inside hot scopes or not -> the most workers that were asleep at
// the end of a pause (but the first, which may have woken them).
int exercise_hot(Native& native, int rounds, int pause_us, bool hot) {
    Pool& pool = native.pool();
    const auto scope = [&] { return hot ? std::make_unique<Pool::Hot>(pool) : nullptr; };
    const auto outer = scope();
    std::atomic<int> ran{0};
    int most = 0;
    for (int round = 0; round < rounds; ++round) {
        std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
        if (round > 0) most = std::max(most, pool.asleep());
        const auto inner = scope();  // the end of an inner scope does not end the outer one
        pool.parallel_for(2 * pool.threads(), [&](int, int) { ran.fetch_add(1); });
    }
    if (ran != rounds * 2 * pool.threads()) throw std::logic_error("a chunk was lost");
    return most;
}

}  // namespace
}  // namespace strata

NB_MODULE(_native, m) {
    using strata::Native;
    nb::class_<Native>(m, "Native")
        .def(nb::init<int, const std::string&>(), nb::arg("threads"), nb::arg("isa"))
        .def_prop_ro("threads", [](Native& native) { return native.pool().threads(); })
        .def_prop_ro("asleep", [](Native& native) { return native.pool().asleep(); })
        .def_prop_ro("isa", [](Native& native) { return strata::isa_name(native.isa()); })
        .def_prop_ro("distinct_experts", [](Native& native) { return native.counters().distinct_experts; })
        .def_prop_ro("expert_bytes", [](Native& native) { return native.counters().expert_bytes; })
        .def_prop_ro("missing_bytes", [](Native& native) { return native.counters().missing_bytes; })
        .def_prop_ro("product_bytes", [](Native& native) { return native.counters().product_bytes; });
    m.def("exercise", &strata::exercise, nb::arg("native"), nb::arg("chunks"), nb::arg("rounds"), nb::arg("fail"),
          nb::arg("out"), nb::call_guard<nb::gil_scoped_release>());
    m.def("exercise_hot", &strata::exercise_hot, nb::arg("native"), nb::arg("rounds"), nb::arg("pause_us"),
          nb::arg("hot"), nb::call_guard<nb::gil_scoped_release>());
    strata::bind_products(m);
    strata::bind_layers(m);
    strata::bind_os_memory(m);
    strata::bind_answerer(m);
    strata::bind_attention(m);
    strata::bind_elementwise(m);
    strata::bind_rows(m);
    strata::bind_choose(m);
    strata::bind_program(m);
}
