// Bindings of norms, rope, convolution, the delta rule and the other layer operations that read no cache.
//
// Sizes and dtypes are checked by the Python wrappers; what lies inside segments is checked here, before anything is
// written.
#include <stdexcept>
#include <string>
#include <vector>

#include "bind.h"
#include "layers_conv.h"
#include "layers_delta.h"
#include "layers_norm.h"
#include "layers_small.h"
#include "native.h"

namespace nb = nanobind;

namespace strata {
namespace {

template <class T>
T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

// Segments follow each other, with a slot of its own each. Rows between them belong to nobody: rows that did not come
// to count are left out when a state goes on over the others.
void check_segments(const int32_t* segments, int64_t count, int64_t rows, int64_t slots) {
    int64_t next = 0;
    std::vector<bool> used(slots, false);
    for (int64_t i = 0; i < count; ++i) {
        const int64_t slot = segments[3 * i], first = segments[3 * i + 1], length = segments[3 * i + 2];
        if (slot < 0 || slot >= slots)
            throw std::out_of_range("segment " + std::to_string(i) + ": slot " + std::to_string(slot) +
                                    " is outside 0 .. " + std::to_string(slots - 1));
        if (first < next || length < 1 || length > rows - first || used[slot])
            throw std::invalid_argument("segment " + std::to_string(i) + " (slot " + std::to_string(slot) + ", rows " +
                                        std::to_string(first) + " + " + std::to_string(length) +
                                        ") does not lie between rows " + std::to_string(next) + " and " +
                                        std::to_string(rows) + " or names a slot a second time");
        used[slot] = true;
        next = first + length;
    }
}

float* reserve(Native& native, int64_t floats) {
    return static_cast<float*>(native.shared_scratch().reserve(static_cast<size_t>(floats) * sizeof(float)));
}

void causal_conv(Native& native, uintptr_t x, uintptr_t weight, uintptr_t history, uintptr_t out, uintptr_t segments,
                 uintptr_t held, int64_t num_segments, int64_t slots, int64_t rows, int64_t channels, int64_t taps,
                 int64_t dilation) {
    const ConvCall call = {at<const float>(x), at<const float>(weight), at<float>(history), at<float>(out),
                           at<const int32_t>(segments), at<const int32_t>(held), rows, num_segments, channels, taps,
                           dilation};
    native.run("causal_conv", [=](Native& n) {
        check_segments(call.segments, num_segments, rows, slots);
        std::lock_guard<std::mutex> lock(n.busy());
        pick_conv_kernels(n.isa()).conv(n.pool(), call, reserve(n, n.pool().threads() * conv_floats(taps)));
    });
}

void carry_rows(Native& native, uintptr_t x, uintptr_t history, uintptr_t segments, int64_t num_segments, int64_t slots,
                int64_t rows, int64_t channels, int64_t span) {
    const CarryCall call = {at<const float>(x), at<float>(history), at<const int32_t>(segments), num_segments, channels,
                            span};
    native.run("carry_rows", [=](Native& n) {
        check_segments(call.segments, num_segments, rows, slots);
        pick_conv_kernels(n.isa()).carry(n.pool(), call);
    });
}

void delta_rule(Native& native, uintptr_t qkv, uintptr_t beta, uintptr_t decay, uintptr_t state, uintptr_t out,
                uintptr_t segments, uintptr_t held, int64_t num_segments, int64_t slots, int64_t rows,
                int64_t key_heads, int64_t value_heads, int64_t key_dim, int64_t value_dim, bool tiled, float eps,
                float scale) {
    const DeltaCall call = {at<const float>(qkv), at<const float>(beta), at<const float>(decay), at<float>(state),
                            at<float>(out), at<const int32_t>(segments), at<const int32_t>(held), rows, num_segments,
                            key_heads, value_heads, key_dim, value_dim, tiled, eps, scale};
    native.run("delta_rule", [=](Native& n) {
        check_segments(call.segments, num_segments, rows, slots);
        std::lock_guard<std::mutex> lock(n.busy());
        pick_delta_kernels(n.isa()).delta(n.pool(), call,
                                          reserve(n, n.pool().threads() * delta_floats(key_dim, value_dim)));
    });
}

void route(Native& native, uintptr_t logits, uintptr_t ids, uintptr_t weights, int64_t rows, int64_t experts,
           int64_t top_k, bool renormalise) {
    native.run("route", [=](Native& n) {
        std::lock_guard<std::mutex> lock(n.busy());
        pick_small_kernels(n.isa())
            .route(n.pool(), at<const float>(logits), at<int32_t>(ids), at<float>(weights), rows, experts, top_k,
                   renormalise, reserve(n, n.pool().threads() * experts));
    });
}

void rms_norm(Native& native, uintptr_t x, uintptr_t weight, uintptr_t y, int64_t groups, int64_t group,
              int64_t weight_len, float eps) {
    native.run("rms_norm", [=](Native& n) {
        pick_norm_kernels(n.isa()).rms_norm(n.pool(), at<const float>(x), at<const float>(weight), at<float>(y), groups,
                                            group, weight_len, eps);
    });
}

void l2_norm(Native& native, uintptr_t x, uintptr_t y, int64_t rows, int64_t dim, float eps, float scale) {
    native.run("l2_norm", [=](Native& n) {
        pick_norm_kernels(n.isa()).l2_norm(n.pool(), at<const float>(x), at<float>(y), rows, dim, eps, scale);
    });
}

void row_dot(Native& native, uintptr_t a, uintptr_t b, uintptr_t y, int64_t rows, int64_t dim) {
    native.run("row_dot", [=](Native& n) {
        pick_norm_kernels(n.isa()).row_dot(n.pool(), at<const float>(a), at<const float>(b), at<float>(y), rows, dim);
    });
}

void rope(Native& native, uintptr_t x, uintptr_t cos, uintptr_t sin, uintptr_t y, int64_t rows, int64_t heads,
          int64_t dim, int64_t half, bool pairs) {
    native.run("rope", [=](Native& n) {
        pick_norm_kernels(n.isa()).rope(n.pool(), at<const float>(x), at<const float>(cos), at<const float>(sin),
                                        at<float>(y), rows, heads, dim, half, pairs);
    });
}

void stream_mix(Native& native, uintptr_t gate, uintptr_t x, uintptr_t y, int64_t rows, int64_t streams,
                int64_t hidden) {
    native.run("stream_mix", [=](Native& n) {
        pick_small_kernels(n.isa()).stream_mix(n.pool(), at<const float>(gate), at<const float>(x), at<float>(y), rows,
                                               streams, hidden);
    });
}

void stream_add(Native& native, uintptr_t residual, uintptr_t y, uintptr_t gates, float divisor, float factor,
                uintptr_t out, int64_t rows, int64_t streams, int64_t hidden) {
    native.run("stream_add", [=](Native& n) {
        pick_small_kernels(n.isa()).stream_add(n.pool(), at<const float>(residual), at<const float>(y),
                                               at<const float>(gates), divisor, factor, at<float>(out), rows, streams,
                                               hidden);
    });
}

}  // namespace

void bind_layers(nb::module_& m) {
    using Free = nb::call_guard<nb::gil_scoped_release>;
    m.def("causal_conv", &causal_conv, Free());
    m.def("carry_rows", &carry_rows, Free());
    m.def("delta_rule", &delta_rule, Free());
    m.def("route", &route, Free());
    m.def("rms_norm", &rms_norm, Free());
    m.def("l2_norm", &l2_norm, Free());
    m.def("row_dot", &row_dot, Free());
    m.def("rope", &rope, Free());
    m.def("stream_mix", &stream_mix, Free());
    m.def("stream_add", &stream_add, Free());
}

}  // namespace strata
