// Weights as Python describes them, and the call of a layer's experts on the rows of a step.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "native.h"
#include "products.h"

namespace strata {

// (format code, rows, cols, address of planes[0], address of planes[1] or 0, scale)
using WeightTuple = std::tuple<int, int64_t, int64_t, uintptr_t, uintptr_t, float>;

WeightView view_of(const WeightTuple& weight);
uint64_t bytes_of(const Native& native, const WeightView& weight);

// The routed experts of one layer, described once; the caller keeps the weights alive.
class Bank {
public:
    Bank(const std::vector<WeightTuple>& gate, const std::vector<WeightTuple>& up,
         const std::vector<WeightTuple>& down);
    int64_t size() const { return static_cast<int64_t>(gate_.size()); }
    int64_t hidden() const { return gate_[0].cols; }
    int64_t width() const { return gate_[0].rows; }
    const WeightView& gate(int64_t expert) const { return gate_[expert]; }
    const WeightView& up(int64_t expert) const { return up_[expert]; }
    const WeightView& down(int64_t expert) const { return down_[expert]; }
    // Asks for what the bank knows of an expert: some lines that lie in no cache, better all at once than one by one.
    void ask(int64_t expert) const {
        for (const auto* weights : {&gate_, &up_, &down_}) __builtin_prefetch(&(*weights)[expert]);
        __builtin_prefetch(&uses_[expert], 1);
    }
    // How often each expert was chosen by a row since the start.
    const std::vector<int64_t>& uses() const { return uses_; }
    void count(int64_t expert, int64_t rows) const { uses_[expert] += rows; }

private:
    std::vector<WeightView> gate_, up_, down_;
    mutable std::vector<int64_t> uses_;
};

struct Routed {
    const float* x;  // [rows, hidden]
    int64_t rows;
    const int32_t* chosen;  // [rows, top_k]
    int top_k;
};

// The experts of every row, combined by `factors` [rows, top_k] in rank order -> y [rows, hidden].
// std::out_of_range for an unknown expert.
void run_experts(Native& native, const Bank& bank, const Routed& routed, const float* factors, float* y);

// Each chosen expert's own result -> outputs [rows * top_k, hidden]; -1 is no expert, and its place stays as it is.
// Returns the number of distinct experts.
int64_t run_experts_apart(Native& native, const Bank& bank, const Routed& routed, float* outputs);

}  // namespace strata
