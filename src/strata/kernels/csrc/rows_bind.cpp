// Copies of rows, and small integers and angles that follow from the rows' positions and tokens; plain host code.
#include <nanobind/stl/array.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#define STRATA_ISA host  // plain code, compiled once
#include "angles.h"
#include "bind.h"
#include "layers_small.h"
#include "native.h"

namespace nb = nanobind;

namespace strata {
namespace {

// A strided view of floats [rows, a, b, c]: address, sizes of the last three axes, strides of all four.
using ViewTuple = std::tuple<uintptr_t, std::array<int64_t, 3>, std::array<int64_t, 4>>;

// One row of a view, in order -> to; returns the end.
float* copy_row(const ViewTuple& view, int64_t row, float* to) {
    const auto& [address, size, stride] = view;
    const float* from = reinterpret_cast<const float*>(address) + row * stride[0];
    for (int64_t a = 0; a < size[0]; ++a)
        for (int64_t b = 0; b < size[1]; ++b) {
            const float* run = from + a * stride[1] + b * stride[2];
            if (stride[3] == 1) std::memcpy(to, run, static_cast<size_t>(size[2]) * sizeof(float));
            else
                for (int64_t c = 0; c < size[2]; ++c) to[c] = run[c * stride[3]];
            to += size[2];
        }
    return to;
}

void join(Native& native, const std::vector<ViewTuple>& views, uintptr_t out, int64_t rows) {
    nb::gil_scoped_release released;
    native.run("join", [=](Native&) {
        float* to = reinterpret_cast<float*>(out);
        for (int64_t row = 0; row < rows; ++row)
            for (const ViewTuple& view : views) to = copy_row(view, row, to);
    });
}

void take_rows(Native& native, uintptr_t x, uintptr_t index, uintptr_t out, int64_t rows, int64_t count,
               int64_t width) {
    native.run("take_rows", [=](Native&) {
        const auto* row = reinterpret_cast<const int32_t*>(index);
        for (int64_t i = 0; i < count; ++i)
            if (row[i] < 0 || row[i] >= rows)
                throw std::out_of_range("row " + std::to_string(row[i]) + " of " + std::to_string(rows));
        for (int64_t i = 0; i < count; ++i)
            std::memcpy(reinterpret_cast<float*>(out) + i * width, reinterpret_cast<const float*>(x) + row[i] * width,
                        static_cast<size_t>(width) * sizeof(float));
    });
}

// cos and sin of position * frequency in double precision (angles.h), rounded once.
void rope_angles(Native& native, uintptr_t positions, uintptr_t frequencies, uintptr_t cos, uintptr_t sin, int64_t rows,
                 int64_t half) {
    native.run("rope_angles", [=](Native&) {
        const auto* frequency = reinterpret_cast<const double*>(frequencies);
        for (int64_t t = 0; t < rows; ++t)
            for (int64_t i = 0; i < half; ++i) {
                double sine, cosine;
                host::sine_cosine(reinterpret_cast<const int32_t*>(positions)[t] * frequency[i], sine, cosine);
                reinterpret_cast<float*>(cos)[t * half + i] = static_cast<float>(cosine);
                reinterpret_cast<float*>(sin)[t * half + i] = static_cast<float>(sine);
            }
    });
}

// The block that ends at each row's position, or kNoEntry; and where that block (or no block: 0) begins.
void completed_blocks(Native& native, uintptr_t positions, uintptr_t blocks, uintptr_t starts, int64_t rows,
                      int64_t ratio) {
    native.run("completed_blocks", [=](Native&) {
        for (int64_t t = 0; t < rows; ++t) {
            const int64_t end = static_cast<int64_t>(reinterpret_cast<const int32_t*>(positions)[t]) + 1;
            const bool complete = end % ratio == 0;
            reinterpret_cast<int32_t*>(blocks)[t] = complete ? static_cast<int32_t>(end / ratio - 1) : kNoEntry;
            reinterpret_cast<int32_t*>(starts)[t] = complete ? static_cast<int32_t>(end - ratio) : 0;
        }
    });
}

struct NgramHash {
    std::vector<int64_t> multipliers, sizes, offsets;
    int64_t end_of_text;

    // Rows of one position's hash heads; `sequence` holds the slot's tokens up to the position.
    void rows(const int64_t* sequence, int64_t position, int64_t* out) const {
        const int64_t orders = static_cast<int64_t>(multipliers.size()), heads = static_cast<int64_t>(sizes.size());
        const int64_t per = heads / (orders - 1);
        auto product = [&](int64_t token, int64_t order) {
            return static_cast<int64_t>(static_cast<uint64_t>(token) * static_cast<uint64_t>(multipliers[order]));
        };
        int64_t mix = product(sequence[position], 0);
        bool cut = false;
        for (int64_t order = 1; order < orders; ++order) {
            cut = cut || position < order || sequence[position - order] == end_of_text;
            mix ^= product(cut ? end_of_text : sequence[position - order], order);
            for (int64_t head = (order - 1) * per; head < order * per; ++head) {
                const int64_t rest = mix % sizes[head];
                out[head] = (rest < 0 ? rest + sizes[head] : rest) + offsets[head];
            }
        }
    }
};

// tokens [slots, context]; out [rows, heads]
void ngram_rows(Native& native, uintptr_t tokens, int64_t slots, int64_t context, uintptr_t slot, uintptr_t position,
                int64_t rows, const std::vector<int64_t>& multipliers, const std::vector<int64_t>& sizes,
                const std::vector<int64_t>& offsets, int64_t end_of_text, uintptr_t out) {
    const NgramHash hash = {multipliers, sizes, offsets, end_of_text};
    nb::gil_scoped_release released;
    native.run("ngram_rows", [=](Native&) {
        for (int64_t t = 0; t < rows; ++t) {
            const int64_t s = reinterpret_cast<const int32_t*>(slot)[t],
                          p = reinterpret_cast<const int32_t*>(position)[t];
            if (s < 0 || s >= slots || p < 0 || p >= context)
                throw std::out_of_range("slot " + std::to_string(s) + ", position " + std::to_string(p) + " of " +
                                        std::to_string(slots) + " slots of " + std::to_string(context) + " tokens");
            hash.rows(reinterpret_cast<const int64_t*>(tokens) + s * context, p,
                      reinterpret_cast<int64_t*>(out) + t * static_cast<int64_t>(hash.sizes.size()));
        }
    });
}

}  // namespace

void bind_rows(nb::module_& m) {
    using Free = nb::call_guard<nb::gil_scoped_release>;
    m.def("join", &join);
    m.def("take_rows", &take_rows, Free());
    m.def("rope_angles", &rope_angles, Free());
    m.def("completed_blocks", &completed_blocks, Free());
    m.def("ngram_rows", &ngram_rows);
}

}  // namespace strata
