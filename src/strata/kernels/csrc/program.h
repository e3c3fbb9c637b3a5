// A step's operations, recorded while they run once and run again without Python.
//
// Addresses and sizes are fixed by the recording; what lies at the addresses is not. So an operation reads everything
// that differs from step to step (token ids, positions, page tables, chosen experts) from memory, and checks it there.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace strata {

class Native;

class Program {
public:
    using Operation = std::function<void(Native&)>;

    void add(const char* name, Operation operation) { steps_.push_back({name, std::move(operation), 0}); }
    size_t size() const { return steps_.size(); }

    // All operations in order; an exception ends the run.
    void run(Native& native) {
        for (Step& step : steps_) step.operation(native);
    }

    // All operations at once, each whole on one thread, begun here and done when the pool's job is finished.
    void run_apart(Native& native);

    // The same in order, and adds up the time of each operation.
    void run_timed(Native& native) {
        for (Step& step : steps_) {
            const auto begin = std::chrono::steady_clock::now();
            step.operation(native);
            step.nanoseconds +=
                std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
        }
    }

    // (name, nanoseconds in all timed runs) of each operation in order.
    std::vector<std::pair<const char*, int64_t>> times() const {
        std::vector<std::pair<const char*, int64_t>> found;
        for (const Step& step : steps_) found.emplace_back(step.name, step.nanoseconds);
        return found;
    }

private:
    struct Step {
        const char* name;
        Operation operation;
        int64_t nanoseconds;
    };
    std::vector<Step> steps_;
    Native* apart_ = nullptr;  // what `run_apart` runs on
};

}  // namespace strata
