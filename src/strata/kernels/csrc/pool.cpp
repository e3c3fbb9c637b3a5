#include "pool.h"

#include <chrono>
#include <fstream>
#include <set>
#include <stdexcept>
#include <utility>
#include <string>

#ifdef __linux__
#include <sched.h>
#endif

namespace strata {
namespace {

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Spins until `ready()` or about 50 us have passed (a layer's serial part is shorter, a sleep costs about as much);
// true when ready.
template <class Ready>
bool spin(Ready ready) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
    do {
        for (int i = 0; i < 64; ++i) {
            if (ready()) return true;
            relax();
        }
    } while (std::chrono::steady_clock::now() < end);
    return ready();
}

}  // namespace

Pool::Pool(int threads) {
    if (threads < 1) throw std::invalid_argument("a pool needs at least 1 thread, got " + std::to_string(threads));
    workers_.reserve(threads - 1);
    for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { serve(worker); });
}

Pool::~Pool() {
    stop_.store(true);
    epoch_.fetch_add(1);
    epoch_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void Pool::run(int chunks, Call call, void* body) {
    if (chunks <= 0) return;
    std::lock_guard<std::mutex> one_caller(caller_);
    failure_ = nullptr;
    call_.store(call, std::memory_order_relaxed);
    body_.store(body, std::memory_order_relaxed);
    chunks_.store(chunks, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    const uint64_t job = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
    ticket_.store(job << 32 | static_cast<uint32_t>(chunks), std::memory_order_release);
    if (chunks > 1 && !workers_.empty()) {
        epoch_.fetch_add(1, std::memory_order_release);
        epoch_.notify_all();
    }
    work(0);
    auto finished = [&] { return done_.load(std::memory_order_acquire) == chunks; };
    if (!spin(finished)) {
        for (int done = done_.load(std::memory_order_acquire); done != chunks;
             done = done_.load(std::memory_order_acquire))
            done_.wait(done, std::memory_order_acquire);
    }
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Pool::work(int worker) {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    while (static_cast<uint32_t>(ticket) != 0) {
        const Call call = call_.load(std::memory_order_relaxed);
        void* const body = body_.load(std::memory_order_relaxed);
        const int chunks = chunks_.load(std::memory_order_relaxed);
        // Success proves that the job is still the one whose fields were just read.
        if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel, std::memory_order_acquire))
            continue;
        const int chunk = chunks - static_cast<int>(static_cast<uint32_t>(ticket));
        try {
            call(body, chunk, worker);
        } catch (...) {
            std::lock_guard<std::mutex> lock(failure_mutex_);
            if (!failure_ || chunk < failure_chunk_) {
                failure_ = std::current_exception();
                failure_chunk_ = chunk;
            }
        }
        if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == chunks) done_.notify_one();
        ticket = ticket_.load(std::memory_order_acquire);
    }
}

void Pool::serve(int worker) {
    uint32_t seen = 0;
    for (;;) {
        auto called = [&] { return epoch_.load(std::memory_order_acquire) != seen; };
        while (!called())
            if (!spin(called)) epoch_.wait(seen, std::memory_order_acquire);
        seen = epoch_.load(std::memory_order_acquire);
        if (stop_.load()) return;
        work(worker);
    }
}

int physical_cores() {
#ifdef __linux__
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof(mask), &mask) == 0) {
        std::set<std::string> cores;  // the list of a core's hardware threads names the core
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
            if (!CPU_ISSET(cpu, &mask)) continue;
            std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
            std::string siblings;
            if (!(file >> siblings)) siblings = "cpu" + std::to_string(cpu);
            cores.insert(siblings);
        }
        if (!cores.empty()) return static_cast<int>(cores.size());
    }
#endif
    const unsigned count = std::thread::hardware_concurrency();
    return count ? static_cast<int>(count) : 1;
}

}  // namespace strata
