// A persistent pool of threads, owned by one Python object. No globals: destroying the pool joins its threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace strata {

class Pool {
public:
    // `threads` counts the caller: a pool of 1 starts no thread. Workers run on the processors and with the memory
    // policy that the constructing thread has. Throws std::invalid_argument below 1.
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int threads() const { return static_cast<int>(workers_.size()) + 1; }
    // Workers that sleep now: all of them soon after the last job, none in a hot scope.
    int asleep() const { return asleep_.load(std::memory_order_relaxed); }

    // Calls fn(chunk, worker) once for every chunk in [0, chunks); worker in [0, threads()) names the running thread's
    // scratch. Which thread runs a chunk is not determined, so fn must write only what belongs to the chunk (or to
    // its worker's scratch). Every chunk runs even when one throws; then the exception of the lowest chunk is thrown
    // here. One call at a time: a second calling thread waits. fn must not call the same pool. At most 2^24 - 1 chunks.
    template <class F>
    __attribute__((always_inline)) void parallel_for(int chunks, F&& fn) {
        using Body = std::remove_reference_t<F>;
        run(chunks, [](void* body, int chunk, int worker) { (*static_cast<Body*>(body))(chunk, worker); },
            const_cast<void*>(static_cast<const void*>(&fn)));
    }

    using Call = void (*)(void* body, int chunk, int worker);
    void run(int chunks, Call call, void* body);

    // Begins a job and returns: workers take its chunks while the caller does something else. It ends in `finish`,
    // which the next job calls too; then the caller takes the chunks that are left. `body` has to live until then. What
    // a chunk throws comes out there.
    void begin(int chunks, Call call, void* body);
    void finish();

    // While one lives the workers are awake and do not go to sleep between jobs: for a program of many short jobs
    // with short serial parts, where a sleeping worker would miss every other job. Scopes nest. Keep it to the
    // program: outside of it an idle pool costs nothing.
    class Hot {
    public:
        explicit Hot(Pool& pool) : pool_(pool) {
            pool_.hot_.fetch_add(1);
            pool_.wake();
        }
        ~Hot() { pool_.hot_.fetch_sub(1); }
        Hot(const Hot&) = delete;
        Hot& operator=(const Hot&) = delete;

    private:
        Pool& pool_;
    };

private:
    // Two 64-byte lines, which some processors fetch together.
    static constexpr size_t line = 128;
    static constexpr int count_bits = 24;
    static constexpr uint64_t count_mask = (uint64_t{1} << count_bits) - 1;

    // A worker's own: written by it alone, but for the chunks of a job that others take from it.
    struct alignas(line) Seat {
        std::atomic<uint64_t> taken{0};  // the last job that took chunks of this seat << count_bits | how many it took
        std::atomic<uint64_t> finished{0};  // job << count_bits | chunks of it that this worker ran
    };

    void publish(int chunks, Call call, void* body);
    void complete();
    void serve(int worker);
    int work(int worker, uint64_t word);
    int claim(int seat, uint64_t word);
    void perform(int chunk, int worker);
    bool finished(uint64_t word, int here) const;
    void sleep(uint64_t word);
    void wake();

    // The job at hand, `word_` = its number << count_bits | its chunks: written once a job, so all threads read it at
    // once. Chunks i, i + threads, .. are thread i's, who takes them in a line of its own; a word from which all
    // threads take their chunks is a queue: with sixteen of them each chunk waited a microsecond and more. Whoever has
    // nothing more to do takes what others have not begun, so no job waits for a thread that the system has put aside;
    // a thread that wakes late finds its chunks taken, or fails its compare-exchange.
    alignas(line) std::atomic<uint64_t> word_{0};
    std::atomic<Call> call_{nullptr};
    std::atomic<void*> body_{nullptr};
    bool begun_ = false;  // a job was begun and not finished
    // Read at every job, changed rarely: a mutex in this line cost a job 100 ns.
    alignas(line) std::atomic<int> asleep_{0};
    std::atomic<uint32_t> alarm_{0};  // what sleeping workers wait on
    std::atomic<int> hot_{0};
    std::atomic<bool> stop_{false};
    alignas(line) std::mutex caller_;
    std::mutex failure_mutex_;
    std::exception_ptr failure_;
    int failure_chunk_ = 0;
    std::unique_ptr<Seat[]> seats_;
    std::vector<std::thread> workers_;
};

}  // namespace strata
