// What one Python `Native` object owns: the threads, the chosen instruction set, scratch memory and counters.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cpu.h"
#include "memory.h"
#include "pool.h"
#include "products.h"
#include "program.h"

namespace strata {

// Work done since the object was made; numbers that metrics read.
struct Counters {
    uint64_t distinct_experts = 0;  // experts read, each counted once per call
    uint64_t expert_bytes = 0;      // bytes of expert weights read
    uint64_t missing_bytes = 0;     // of these, not in memory when their call began, as calls that are looked at tell
    uint64_t product_bytes = 0;     // bytes of other weights read by `linear`
    uint64_t expert_calls = 0;      // calls of experts
    uint64_t unlooked_bytes = 0;    // of expert_bytes, those of which nothing is known before the next look
};

class Native {
public:
    Native(int threads, const std::string& isa) : Native(threads, resolve_isa(isa)) {}
    Native(int threads, Isa isa) : isa_(isa), pool_(threads), worker_scratch_(pool_.threads()) {}

    Pool& pool() { return pool_; }
    Isa isa() const { return isa_; }

    // Held by an operation that uses scratch or counters (the interpreter lock is released meanwhile).
    std::mutex& busy() { return busy_; }
    Scratch& shared_scratch() { return shared_scratch_; }
    Scratch& worker_scratch(int worker) { return worker_scratch_[worker]; }
    Context context() { return {pool_, shared_scratch_, worker_scratch_.data()}; }
    Counters& counters() { return counters_; }

    // One of one thread for each worker of the pool, for operations that run whole on a thread beside each other. What
    // they count is not among `counters`.
    Native& alone(int worker) { return *alone_[worker]; }
    void prepare_alone() {
        while (alone_.size() < worker_scratch_.size()) alone_.push_back(std::make_unique<Native>(1, isa_));
    }

    // Runs an operation now; while a program is recorded, keeps it for later runs too.
    void run(const char* name, Program::Operation operation) {
        operation(*this);
        if (recording_) recording_->add(name, std::move(operation));
    }
    void record(Program* program) { recording_ = program; }

private:
    Isa isa_;
    Pool pool_;
    std::mutex busy_;
    Scratch shared_scratch_;
    std::vector<Scratch> worker_scratch_;
    Counters counters_;
    std::vector<std::unique_ptr<Native>> alone_;
    Program* recording_ = nullptr;  // one thread records at a time
};

inline void Program::run_apart(Native& native) {
    native.prepare_alone();
    apart_ = &native;
    const auto call = [](void* body, int number, int worker) {
        auto* program = static_cast<Program*>(body);
        program->steps_[static_cast<size_t>(number)].operation(program->apart_->alone(worker));
    };
    native.pool().begin(static_cast<int>(steps_.size()), call, this);
}

}  // namespace strata
