#include "block.h"

#include <cstring>
#include <stdexcept>
#include <utility>

namespace strata::simt {
namespace {

const char* name_of(Meeting meeting) {
    switch (meeting) {
        case Meeting::barrier: return "barrier";
        case Meeting::sync_warp: return "sync_warp";
        case Meeting::shuffle_xor: return "shuffle_xor";
        case Meeting::shuffle: return "shuffle";
        case Meeting::ballot: return "ballot";
        default: return "nothing";
    }
}

bool of_group(Meeting meeting) { return meeting >= Meeting::sync_warp && meeting <= Meeting::ballot; }

constexpr unsigned char kUnset = 0xff;  // shared memory before it is written: a NaN, or -1

}  // namespace

Block*& current() {
    static thread_local Block* block = nullptr;
    return block;
}

void arrange(std::vector<int>& items, int count, uint64_t order) {
    items.resize(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) items[i] = i;
    if (!order) return;
    for (int i = count - 1; i > 0; --i) {
        order = order * 6364136223846793005u + 1442695040888963407u;
        std::swap(items[i], items[(order >> 33) % static_cast<uint64_t>(i + 1)]);
    }
}

void Block::run(Kernel kernel, const Argument* arguments, Grid grid, Grid at, int threads, size_t shared,
                uint64_t order) {
    kernel_ = kernel, arguments_ = arguments, grid_ = grid, at_ = at, threads_ = threads;
    ++number_;
    static_shared_ = 0;
    fault_.clear();
    dynamic_.assign(shared, kUnset);
    stacks_.reserve(threads);
    state_.resize(static_cast<size_t>(threads));
    for (int t = 0; t < threads; ++t) state_[t] = {stacks_.prepare(t, enter), Meeting::none, 0, 0, 0};
    arrange(groups_, (threads + kGroup - 1) / kGroup, order);
    arrange(lanes_, kGroup, order);
    Block* const outer = std::exchange(current(), this);
    bool live = true;
    while (live && fault_.empty()) {
        bool moved = false;
        for (const int group : groups_) moved = advance_group(group * kGroup) || moved;
        live = false;
        for (const Thread& thread : state_) live = live || thread.waits != Meeting::ended;
        if (live && fault_.empty() && !moved && !release_barrier()) fault_ = stuck();
    }
    current() = outer;
    if (!fault_.empty())
        throw std::runtime_error("block (" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " +
                                 std::to_string(at.z) + "): " + fault_);
}

// Runs the lanes of a group until none of them can go on; whether any ran.
bool Block::advance_group(int first) {
    bool moved = false, again = true;
    while (again && fault_.empty()) {
        bool paused = false;
        again = false;
        for (const int lane : lanes_) {
            const int t = first + lane;
            if (t >= threads_ || (state_[t].waits != Meeting::none && state_[t].waits != Meeting::pause)) continue;
            state_[t].waits = Meeting::none;
            running_ = t;
            switch_fibre(&scheduler_, state_[t].fibre);
            moved = true;
            if (!fault_.empty()) return true;
            paused = paused || state_[t].waits == Meeting::pause;
        }
        again = !paused && complete_group(first);
    }
    return moved;
}

// Gives the lanes of a group what they exchange when all wait at the same place.
bool Block::complete_group(int first) {
    if (first + kGroup > threads_) return false;
    Thread* const lane = state_.data() + first;
    if (!of_group(lane[0].waits)) return false;
    uint32_t values[kGroup], votes = 0;
    for (int l = 0; l < kGroup; ++l) {
        if (lane[l].waits != lane[0].waits || lane[l].line != lane[0].line) return false;
        values[l] = lane[l].value;
        votes |= static_cast<uint32_t>(lane[l].value != 0) << l;
    }
    for (int l = 0; l < kGroup; ++l) {
        if (lane[l].waits == Meeting::shuffle_xor) lane[l].value = values[(l ^ lane[l].argument) % kGroup];
        if (lane[l].waits == Meeting::shuffle) lane[l].value = values[lane[l].argument % kGroup];
        if (lane[l].waits == Meeting::ballot) lane[l].value = votes;
        lane[l].waits = Meeting::none;
    }
    return true;
}

// Lets all go on when every thread that has not ended waits at the same barrier.
bool Block::release_barrier() {
    int line = -1;
    for (const Thread& thread : state_) {
        if (thread.waits == Meeting::ended) continue;
        if (thread.waits != Meeting::barrier || (line >= 0 && thread.line != line)) return false;
        line = thread.line;
    }
    for (Thread& thread : state_)
        if (thread.waits == Meeting::barrier) thread.waits = Meeting::none;
    return true;
}

std::string Block::describe(int thread) const {
    const Thread& state = state_[thread];
    if (state.waits == Meeting::ended) return "thread " + std::to_string(thread) + " has ended";
    return "thread " + std::to_string(thread) + " waits at " + name_of(state.waits) + " (line " +
           std::to_string(state.line) + ")";
}

// Names one waiting thread and the first that is elsewhere: in its group for what a group does, else in the block.
std::string Block::stuck() const {
    for (int t = 0; t < threads_; ++t) {
        const Thread& state = state_[t];
        if (state.waits == Meeting::ended) continue;
        const bool group = of_group(state.waits);
        const int first = group ? t / kGroup * kGroup : 0, end = group ? first + kGroup : threads_;
        if (end > threads_)
            return describe(t) + ", which needs 32 lanes; its group has " + std::to_string(threads_ - first);
        for (int other = first; other < end; ++other) {
            const Thread& its = state_[other];
            if (its.waits == Meeting::ended && !group) continue;
            if (its.waits != state.waits || its.line != state.line) return describe(t) + " but " + describe(other);
        }
    }
    return "its threads wait for each other";
}

void Block::enter() {
    Block& block = *current();
    block.kernel_(block.arguments_);
    block.state_[block.running_].waits = Meeting::ended;
    block.leave();
}

void Block::leave() { switch_fibre(&state_[running_].fibre, scheduler_); }

void Block::meet(Meeting meeting, int line) {
    Thread& thread = state_[running_];
    thread.waits = meeting;
    thread.line = line;
    leave();
}

uint32_t Block::exchange(Meeting meeting, uint32_t value, int argument, int line) {
    Thread& thread = state_[running_];
    thread.value = value;
    thread.argument = argument;
    meet(meeting, line);
    return thread.value;
}

void Block::use_shared(size_t bytes) {
    static_shared_ += bytes;
    if (static_shared_ <= kStaticShared) return;
    fault_ = std::to_string(static_shared_) + " bytes of static shared arrays; a GPU has " +
             std::to_string(kStaticShared);
    leave();  // never comes back
}

}  // namespace strata::simt
