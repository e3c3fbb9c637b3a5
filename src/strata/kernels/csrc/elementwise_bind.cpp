// Bindings of elementwise arithmetic.
#include <cstdint>

#include "bind.h"
#include "layers_elementwise.h"
#include "native.h"

namespace nb = nanobind;

namespace strata {
namespace {

const float* in(uintptr_t address) { return reinterpret_cast<const float*>(address); }
float* to(uintptr_t address) { return reinterpret_cast<float*>(address); }

void add(Native& native, uintptr_t x, uintptr_t y, uintptr_t out, int64_t count) {
    native.run("add", [=](Native& n) {
        pick_elementwise_kernels(n.isa()).add(n.pool(), in(x), in(y), to(out), count);
    });
}

void divide(Native& native, uintptr_t x, float by, uintptr_t out, int64_t count) {
    native.run("divide", [=](Native& n) {
        pick_elementwise_kernels(n.isa()).divide(n.pool(), in(x), by, to(out), count);
    });
}

void multiply(Native& native, uintptr_t x, float by, uintptr_t out, int64_t count) {
    native.run("multiply", [=](Native& n) {
        pick_elementwise_kernels(n.isa()).multiply(n.pool(), in(x), by, to(out), count);
    });
}

void gate(Native& native, int kind, uintptr_t g, uintptr_t x, uintptr_t out, int64_t count) {
    native.run("gate", [=](Native& n) {
        pick_elementwise_kernels(n.isa()).gate(n.pool(), kind, in(g), in(x), to(out), count);
    });
}

void signed_root(Native& native, uintptr_t x, float least, uintptr_t out, int64_t count) {
    native.run("signed_root", [=](Native& n) {
        pick_elementwise_kernels(n.isa()).signed_root(n.pool(), in(x), least, to(out), count);
    });
}

void delta_rates(Native& native, uintptr_t b, uintptr_t a, uintptr_t rate, uintptr_t bias, uintptr_t beta,
                 uintptr_t decay, int64_t rows, int64_t heads) {
    native.run("delta_rates", [=](Native& n) {
        pick_elementwise_kernels(n.isa())
            .delta_rates(n.pool(), in(b), in(a), in(rate), in(bias), to(beta), to(decay), rows, heads);
    });
}

void spread(Native& native, uintptr_t weights, uintptr_t x, uintptr_t out, int64_t rows, int64_t streams,
            int64_t hidden) {
    native.run("spread", [=](Native& n) {
        pick_elementwise_kernels(n.isa()).spread(n.pool(), in(weights), in(x), to(out), rows, streams, hidden);
    });
}

}  // namespace

void bind_elementwise(nb::module_& m) {
    using Free = nb::call_guard<nb::gil_scoped_release>;
    m.def("add", &add, Free());
    m.def("divide", &divide, Free());
    m.def("multiply", &multiply, Free());
    m.def("gate", &gate, Free());
    m.def("signed_root", &signed_root, Free());
    m.def("delta_rates", &delta_rates, Free());
    m.def("spread", &spread, Free());
}

}  // namespace strata
