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
    seats_ = std::make_unique<Seat[]>(static_cast<size_t>(threads));
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
    if (std::exchange(begun_, false)) complete();
    publish(chunks, call, body);
    complete();
}

void Pool::begin(int chunks, Call call, void* body) {
    if (chunks <= 0) return;
    std::lock_guard<std::mutex> one_caller(caller_);
    if (std::exchange(begun_, false)) complete();
    publish(chunks, call, body);
    begun_ = true;
}

void Pool::finish() {
    std::lock_guard<std::mutex> one_caller(caller_);
    if (std::exchange(begun_, false)) complete();
}

void Pool::publish(int chunks, Call call, void* body) {
    if (static_cast<uint64_t>(chunks) > count_mask)
        throw std::invalid_argument(std::to_string(chunks) + " chunks, a pool counts to " + std::to_string(count_mask));
    call_.store(call, std::memory_order_relaxed);
    body_.store(body, std::memory_order_relaxed);
    const uint64_t job = (word_.load(std::memory_order_relaxed) >> count_bits) + 1;
    const uint64_t word = job << count_bits | static_cast<uint64_t>(chunks);
    // In one order with a worker's `asleep_`: either it sees this job before it sleeps or it is seen here and woken.
    word_.store(word, std::memory_order_seq_cst);
    if (chunks > 1 && asleep_.load(std::memory_order_seq_cst) > 0) wake();
}

// Takes what is left of the job at hand, and waits for its end.
void Pool::complete() {
    const uint64_t word = word_.load(std::memory_order_relaxed);
    const int ran = work(0, word);
    auto over = [&] { return finished(word, ran); };
    if (!spin(over))
        while (!over()) std::this_thread::yield();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

// Whether all chunks of the job were run, `here` of them by the caller.
bool Pool::finished(uint64_t word, int here) const {
    uint64_t left = (word & count_mask) - static_cast<uint64_t>(here);
    for (int seat = 1; seat < threads() && left != 0; ++seat) {
        const uint64_t by = seats_[seat].finished.load(std::memory_order_acquire);
        if (by >> count_bits == word >> count_bits) left -= by & count_mask;
    }
    return left == 0;
}

// The next chunk of a seat, -1 when all are taken. Success proves that the job is not over, so its fields may be read.
int Pool::claim(int seat, uint64_t word) {
    const uint64_t job = word >> count_bits, chunks = word & count_mask;
    const uint64_t first = static_cast<uint64_t>(seat), each = static_cast<uint64_t>(threads());
    uint64_t before = seats_[seat].taken.load(std::memory_order_relaxed);
    for (;;) {
        if (before >> count_bits > job) return -1;
        const uint64_t count = before >> count_bits == job ? before & count_mask : 0, chunk = first + count * each;
        if (chunk >= chunks) return -1;
        if (seats_[seat].taken.compare_exchange_weak(before, job << count_bits | (count + 1), std::memory_order_acq_rel,
                                                     std::memory_order_relaxed))
            return static_cast<int>(chunk);
    }
}

void Pool::perform(int chunk, int worker) {
    const Call call = call_.load(std::memory_order_relaxed);
    void* const body = body_.load(std::memory_order_relaxed);
    try {
        call(body, chunk, worker);
    } catch (...) {
        std::lock_guard<std::mutex> lock(failure_mutex_);
        if (!failure_ || chunk < failure_chunk_) {
            failure_ = std::current_exception();
            failure_chunk_ = chunk;
        }
    }
}

// Takes chunks of the job until none is left, its own first; how many it ran.
int Pool::work(int worker, uint64_t word) {
    const int chunks = static_cast<int>(word & count_mask), seats = chunks < threads() ? chunks : threads();
    int ran = 0;
    for (int i = 0; i < threads(); ++i) {
        const int seat = (worker + i) % threads();
        if (seat >= seats) continue;
        for (int chunk; (chunk = claim(seat, word)) >= 0; ++ran) perform(chunk, worker);
    }
    return ran;
}

void Pool::serve(int worker) {
    uint64_t seen = 0;
    for (;;) {
        auto called = [&] {
            return word_.load(std::memory_order_acquire) != seen || stop_.load(std::memory_order_relaxed);
        };
        while (!called()) {
            if (spin(called) || linger(called)) break;
            if (hot_.load(std::memory_order_relaxed) == 0) sleep(seen);
        }
        if (stop_.load()) return;
        seen = word_.load(std::memory_order_acquire);
        const int ran = work(worker, seen);
        if (ran) {
            const uint64_t by = seen >> count_bits << count_bits | static_cast<uint64_t>(ran);
            seats_[worker].finished.store(by, std::memory_order_release);
        }
    }
}

// Until a job other than `seen`, a hot scope or the end.
void Pool::sleep(uint64_t seen) {
    const uint32_t alarm = alarm_.load();
    asleep_.fetch_add(1);
    if (word_.load() == seen && hot_.load() == 0 && !stop_.load()) alarm_.wait(alarm);
    asleep_.fetch_sub(1);
}

void Pool::wake() {
    alarm_.fetch_add(1);
    alarm_.notify_all();
}

}  // namespace strata
