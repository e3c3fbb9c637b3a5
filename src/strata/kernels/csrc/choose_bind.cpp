// The choice of one token from a row of logits: borders without a sort, then exact integer sums. choose/naive.py states
// the rule; a full sort of 248,320 values would take longer than the product that made them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "bind.h"
#include "layers_choose.h"
#include "native.h"

namespace nb = nanobind;

namespace strata {
namespace {

constexpr int kBins = 1 << 13;
constexpr double kLargestWeight = 17592186044416.0;  // 2^44

// The bin of a value; larger values never lie in lower bins. -0 counts as +0.
int bin_of(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);
    return static_cast<int>((bits >> 31 ? ~bits : bits | 0x80000000u) >> 19);
}

// Tokens as likely as the one at (value, place), or likelier; places increase with ids.
struct Border {
    float value;
    int64_t place;
    bool keeps(float other, int64_t at) const { return other > value || (other == value && at <= place); }
};

// Places of the k likeliest values in increasing order. Few values pass the least of the best so far, so the row is
// read once: 0.1 ms for 248,320 values, where a histogram took 1.3 ms.
std::vector<int64_t> likeliest(const float* values, int64_t count, int64_t k) {
    const auto likelier = [=](int64_t a, int64_t b) {
        return values[a] > values[b] || (values[a] == values[b] && a < b);
    };
    std::vector<int64_t> best;
    best.reserve(2 * k + 64);
    float least = -INFINITY;
    const auto keep_k = [&] {
        std::nth_element(best.begin(), best.begin() + (k - 1), best.end(), likelier);
        best.resize(k);
        least = values[best[k - 1]];
    };
    for (int64_t i = 0; i < count; ++i) {
        // An equal value comes later, so it is less likely; until k are held all pass.
        if (!(values[i] > least) && static_cast<int64_t>(best.size()) >= k) continue;
        best.push_back(i);
        if (static_cast<int64_t>(best.size()) == 2 * k + 64) keep_k();
    }
    if (static_cast<int64_t>(best.size()) > k) keep_k();
    std::sort(best.begin(), best.end());
    return best;
}

// Where the run of likeliest tokens reaches `wanted`, when token i adds weights[i]; there must be that much.
Border border_of(const float* values, int64_t count, int64_t wanted, const int64_t* weights) {
    std::vector<int64_t> sums(kBins, 0);
    for (int64_t i = 0; i < count; ++i) sums[bin_of(values[i])] += weights[i];
    int bin = kBins - 1;
    int64_t run = 0;
    while (bin > 0 && run + sums[bin] < wanted) run += sums[bin--];
    std::vector<int64_t> members;
    for (int64_t i = 0; i < count; ++i)
        if (bin_of(values[i]) == bin) members.push_back(i);
    std::sort(members.begin(), members.end(), [=](int64_t a, int64_t b) {
        return values[a] > values[b] || (values[a] == values[b] && a < b);
    });
    for (const int64_t member : members)
        if ((run += weights[member]) >= wanted) return {values[member], member};
    return {-INFINITY, count};
}

struct Wish {
    float temperature;
    int64_t top_k;
    double top_p, min_p, uniform;
};

// The place of the drawn token among `count` values.
int64_t draw(const ChooseKernels& kernels, const float* values, int64_t count, float largest, const Wish& wish,
             int64_t* weights) {
    int64_t whole = kernels.weigh(values, count, largest, wish.temperature, weights);
    Border border = {-INFINITY, count};
    if (wish.top_p < 1.0) {
        const auto wanted = static_cast<int64_t>(std::ceil(wish.top_p * static_cast<double>(whole)));
        border = border_of(values, count, wanted < 1 ? 1 : wanted, weights);
    }
    if (wish.top_p < 1.0 || wish.min_p > 0.0) {
        const double least = wish.min_p * kLargestWeight;
        whole = 0;
        for (int64_t i = 0; i < count; ++i) {
            if (!border.keeps(values[i], i) || static_cast<double>(weights[i]) < least) weights[i] = 0;
            whole += weights[i];
        }
    }
    const int64_t mark = std::min(static_cast<int64_t>(wish.uniform * static_cast<double>(whole)), whole - 1);
    int64_t run = 0, place = 0;
    while ((run += weights[place]) <= mark) ++place;
    return place;
}

int64_t choose(Native& native, uintptr_t logits, int64_t count, double temperature, int64_t top_k, double top_p,
               double min_p, double uniform) {
    const auto* values = reinterpret_cast<const float*>(logits);
    const ChooseKernels& kernels = pick_choose_kernels(native.isa());
    const float largest = kernels.largest(values, count);
    const Wish wish = {static_cast<float>(temperature), top_k, top_p, min_p, uniform};
    if (!std::isfinite(largest) || !(wish.temperature > 0.0f))
        throw std::invalid_argument("choose: " + std::to_string(count) + " values, the largest " +
                                    std::to_string(largest) + ", at " + std::to_string(temperature));
    std::lock_guard<std::mutex> alone(native.busy());
    auto* weights = static_cast<int64_t*>(native.shared_scratch().reserve(static_cast<size_t>(count) * 12 + 64));
    if (top_k <= 0 || top_k >= count) return draw(kernels, values, count, largest, wish, weights);
    const std::vector<int64_t> ids = likeliest(values, count, top_k);
    std::vector<float> likely;
    for (const int64_t id : ids) likely.push_back(values[id]);
    return ids[draw(kernels, likely.data(), static_cast<int64_t>(ids.size()), largest, wish, weights)];
}

}  // namespace

void bind_choose(nb::module_& m) { m.def("choose", &choose, nb::call_guard<nb::gil_scoped_release>()); }

}  // namespace strata
