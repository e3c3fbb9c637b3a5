#include "bank.h"

#include <stdexcept>
#include <string>

#include "os_memory.h"

namespace strata {

WeightView view_of(const WeightTuple& weight) {
    const auto& [format, rows, cols, data, scales, scale] = weight;
    if (format < 0 || format >= format_count)
        throw std::invalid_argument("unknown format code " + std::to_string(format));
    return {format, rows, cols, reinterpret_cast<const uint8_t*>(data), reinterpret_cast<const uint8_t*>(scales),
            scale};
}

uint64_t bytes_of(const Native& native, const WeightView& weight) {
    const Format& format = pick_product_kernels(native.isa()).formats[weight.format];
    return static_cast<uint64_t>(weight.rows) * weight.cols / format.block * format.bytes;
}

Bank::Bank(const std::vector<WeightTuple>& gate, const std::vector<WeightTuple>& up,
           const std::vector<WeightTuple>& down) {
    for (const WeightTuple& weight : gate) gate_.push_back(view_of(weight));
    for (const WeightTuple& weight : up) up_.push_back(view_of(weight));
    for (const WeightTuple& weight : down) down_.push_back(view_of(weight));
    if (gate_.empty() || gate_.size() != up_.size() || gate_.size() != down_.size())
        throw std::invalid_argument("a bank needs as many gate, up and down matrices, and at least one");
    uses_.assign(gate_.size(), 0);
}

namespace {

// Calls of which one is looked at. A look costs a microsecond or two for each expert; a prime, so that all layers have
// their turn whatever their number is.
constexpr uint64_t look_every = 127;

// Entries of `chosen` in the order of their experts, rows in order within an expert (a stable sort by counting).
class Grouped {
public:
    Grouped(Native& native, const Bank& bank, const Routed& routed, bool may_skip) : bank_(bank), routed_(routed) {
        const int64_t entries = routed.rows * routed.top_k;
        std::vector<int32_t> start(bank.size() + 1, 0);
        int64_t pairs = 0;
        for (int64_t entry = 0; entry < entries; ++entry) {
            const int32_t expert = routed.chosen[entry];
            if (expert == -1 && may_skip) continue;
            if (expert < 0 || expert >= bank.size())
                throw std::out_of_range("expert " + std::to_string(expert) + " of " + std::to_string(bank.size()));
            bank.ask(expert);
            ++start[expert + 1];
            ++pairs;
        }
        for (int64_t expert = 0; expert < bank.size(); ++expert) {
            const int32_t rows = start[expert + 1];
            start[expert + 1] += start[expert];
            if (rows == 0) continue;
            bank.count(expert, rows);
            add(native, expert, start[expert]);
        }
        begin_.push_back(static_cast<int32_t>(pairs));
        count(native);
        row_.resize(pairs);
        place_.assign(entries, -1);
        for (int64_t entry = 0; entry < entries; ++entry) {
            if (routed.chosen[entry] < 0) continue;
            const int32_t pair = start[routed.chosen[entry]]++;
            row_[pair] = static_cast<int32_t>(entry / routed.top_k);
            place_[entry] = pair;
        }
    }

    int64_t distinct() const { return static_cast<int64_t>(gate_.size()); }
    ExpertsJob job(const float* factors, float* y, float* outputs) const {
        return {routed_.x,     routed_.rows, bank_.hidden(), bank_.width(),
                routed_.top_k, static_cast<int>(gate_.size()),
                gate_.data(),  up_.data(),   down_.data(),   begin_.data(), row_.data(), place_.data(),
                factors,       y,            outputs};
    }

private:
    void add(Native& native, int64_t expert, int32_t begin) {
        begin_.push_back(begin);
        gate_.push_back(&bank_.gate(expert));
        up_.push_back(&bank_.up(expert));
        down_.push_back(&bank_.down(expert));
        for (const WeightView* weight : {gate_.back(), up_.back(), down_.back()}) bytes_ += bytes_of(native, *weight);
    }

    void count(Native& native) const {
        Counters& counters = native.counters();
        counters.distinct_experts += gate_.size();
        counters.expert_bytes += bytes_;
        counters.unlooked_bytes += bytes_;
        if (counters.expert_calls++ % look_every != 0 || bytes_ == 0) return;
        // All calls since the last look are taken to have missed as much as this one.
        const double share = static_cast<double>(missing(native)) / static_cast<double>(bytes_);
        counters.missing_bytes += static_cast<uint64_t>(share * static_cast<double>(counters.unlooked_bytes));
        counters.unlooked_bytes = 0;
    }

    uint64_t missing(const Native& native) const {
        uint64_t found = 0;
        for (const auto* weights : {&gate_, &up_, &down_})
            for (const WeightView* weight : *weights) {
                const uint64_t bytes = bytes_of(native, *weight);
                found += bytes - resident(weight->data, bytes);
            }
        return found;
    }

    const Bank& bank_;
    const Routed& routed_;
    std::vector<int32_t> begin_, row_, place_;
    std::vector<const WeightView*> gate_, up_, down_;
    uint64_t bytes_ = 0;
};

}  // namespace

void run_experts(Native& native, const Bank& bank, const Routed& routed, const float* factors, float* y) {
    std::lock_guard<std::mutex> alone(native.busy());
    const Grouped grouped(native, bank, routed, false);
    pick_product_kernels(native.isa()).experts(native.context(), grouped.job(factors, y, nullptr));
}

int64_t run_experts_apart(Native& native, const Bank& bank, const Routed& routed, float* outputs) {
    std::lock_guard<std::mutex> alone(native.busy());
    const Grouped grouped(native, bank, routed, true);
    if (grouped.distinct() != 0)
        pick_product_kernels(native.isa()).experts(native.context(), grouped.job(nullptr, nullptr, outputs));
    return grouped.distinct();
}

}  // namespace strata
