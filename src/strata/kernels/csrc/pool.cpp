#include "pool.h"

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

namespace strata {
namespace {

// A waiting thread spins, then looks again between offers of its processor to whoever wants it (a yield takes 0.5 us),
// then sleeps. Waking a sleeper takes 16 us; a layer's serial part is shorter than the spin. Measured on two cores.
constexpr std::chrono::microseconds spin_time{50};
constexpr std::chrono::microseconds linger_time{200};

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Spins until `ready()` or until `spin_time` has passed; true when ready.
template <class Ready>
bool spin(Ready ready) {
    const auto end = std::chrono::steady_clock::now() + spin_time;
    do {
        for (int i = 0; i < 64; ++i) {
            if (ready()) return true;
            relax();
        }
    } while (std::chrono::steady_clock::now() < end);
    return ready();
}

// Yields until `ready()` or until `linger_time` has passed; true when ready.
template <class Ready>
bool linger(Ready ready) {
    const auto end = std::chrono::steady_clock::now() + linger_time;
    do {
        if (ready()) return true;
        std::this_thread::yield();
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
    wake();
    for (std::thread& worker : workers_) worker.join();
}

void Pool::run(int chunks, Call call, void* body) {
    if (chunks <= 0) return;
    std::lock_guard<std::mutex> one_caller(caller_);
    if (begun_) complete(std::exchange(begun_, 0));
    publish(chunks, call, body);
    complete(chunks);
}

void Pool::begin(int chunks, Call call, void* body) {
    if (chunks <= 0) return;
    std::lock_guard<std::mutex> one_caller(caller_);
    if (begun_) complete(std::exchange(begun_, 0));
    publish(chunks, call, body);
    begun_ = chunks;
}

void Pool::finish() {
    std::lock_guard<std::mutex> one_caller(caller_);
    if (begun_) complete(std::exchange(begun_, 0));
}

void Pool::publish(int chunks, Call call, void* body) {
    call_.store(call, std::memory_order_relaxed);
    body_.store(body, std::memory_order_relaxed);
    chunks_.store(chunks, std::memory_order_relaxed);
    const uint64_t job = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
    // In one order with a worker's `asleep_`: either it sees this job before it sleeps or it is seen here and woken.
    ticket_.store(job << 32 | static_cast<uint32_t>(chunks), std::memory_order_seq_cst);
    if (chunks > 1 && asleep_.load(std::memory_order_seq_cst) > 0) wake();
}

// Takes what is left of the job at hand, which has so many chunks, and waits for its end.
void Pool::complete(int chunks) {
    expected_ += static_cast<uint32_t>(chunks - work(0));
    auto finished = [&] { return done_.load(std::memory_order_acquire) == expected_; };
    if (!spin(finished)) {
        for (uint32_t done = done_.load(std::memory_order_acquire); done != expected_;
             done = done_.load(std::memory_order_acquire))
            done_.wait(done, std::memory_order_acquire);
    }
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

// Takes chunks of the job at hand until none is left; how many it ran.
int Pool::work(int worker) {
    int ran = 0;
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
        ++ran;
        if (static_cast<uint32_t>(ticket) == 1) break;  // that was the last one: no need to fetch the line to know it
        ticket = ticket_.load(std::memory_order_acquire);
    }
    return ran;
}

void Pool::serve(int worker) {
    uint64_t seen = 0;
    for (;;) {
        auto called = [&] { return job() != seen || stop_.load(std::memory_order_relaxed); };
        while (!called()) {
            if (spin(called) || linger(called)) break;
            if (hot_.load(std::memory_order_relaxed) == 0) sleep(seen);
        }
        if (stop_.load()) return;
        seen = job();
        const int ran = work(worker);
        if (ran) {
            done_.fetch_add(ran, std::memory_order_acq_rel);
            done_.notify_one();
        }
    }
}

// Until a job other than `seen`, a hot scope or the end.
void Pool::sleep(uint64_t seen) {
    const uint32_t alarm = alarm_.load();
    asleep_.fetch_add(1);
    if (ticket_.load() >> 32 == seen && hot_.load() == 0 && !stop_.load()) alarm_.wait(alarm);
    asleep_.fetch_sub(1);
}

void Pool::wake() {
    alarm_.fetch_add(1);
    alarm_.notify_all();
}

}  // namespace strata
