// One block of a launch on the host: its threads as fibres that take turns on one thread of the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fibre.h"

namespace strata::simt {

constexpr int kGroup = 32;              // lanes that exchange values
constexpr size_t kStaticShared = 48 << 10;  // bytes of static shared arrays that every GPU has

union Argument {
    int64_t integer;  // or a pointer
    float real;
};

struct Grid {
    int x, y, z;
};

// What a thread waits for; `what` is the dialect's name of it.
enum class Meeting : uint8_t { none, barrier, sync_warp, shuffle_xor, shuffle, ballot, pause, ended };

class Block {
public:
    using Kernel = void (*)(const Argument*);

    // Runs one block to its end; std::runtime_error when its threads wait for each other in vain.
    // `order` 0 runs threads by number, others in an order that it decides.
    void run(Kernel kernel, const Argument* arguments, Grid grid, Grid at, int threads, size_t shared, uint64_t order);

    // For the running thread of the block; the line is that of the kernel's source.
    int thread() const { return running_; }
    int threads() const { return threads_; }
    Grid at() const { return at_; }
    Grid grid() const { return grid_; }
    unsigned char* dynamic_shared() { return dynamic_.data(); }
    uint64_t number() const { return number_; }
    void meet(Meeting meeting, int line);
    uint32_t exchange(Meeting meeting, uint32_t value, int argument, int line);
    void use_shared(size_t bytes);  // a static array of this block is used for the first time

private:
    struct Thread {
        void* fibre;
        Meeting waits;
        int line;
        uint32_t value;
        int argument;
    };

    static void enter();
    void leave();
    bool advance_group(int first);
    bool complete_group(int first);
    bool release_barrier();
    std::string stuck() const;
    std::string describe(int thread) const;

    Stacks stacks_;
    std::vector<Thread> state_;
    std::vector<unsigned char> dynamic_;
    std::vector<int> groups_, lanes_;
    Kernel kernel_ = nullptr;
    const Argument* arguments_ = nullptr;
    void* scheduler_ = nullptr;
    Grid grid_{}, at_{};
    int threads_ = 0, running_ = 0;
    uint64_t number_ = 0;
    size_t static_shared_ = 0;
    std::string fault_;
};

// The block that this thread of the process runs, for the dialect's functions.
Block*& current();

// A permutation of 0 .. count - 1 that `order` decides; 0 keeps the order.
void arrange(std::vector<int>& items, int count, uint64_t order);

}  // namespace strata::simt
