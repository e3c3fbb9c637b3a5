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
    // `threads` counts the caller: a pool of 1 starts no thread. Throws std::invalid_argument below 1.
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int threads() const { return static_cast<int>(workers_.size()) + 1; }

    // Calls fn(chunk, worker) once for every chunk in [0, chunks); worker in [0, threads()) names the running thread's
    // scratch. Which thread runs a chunk is not determined, so fn must write only what belongs to the chunk (or to
    // its worker's scratch). Every chunk runs even when one throws; then the exception of the lowest chunk is thrown
    // here. One call at a time: a second calling thread waits. fn must not call the same pool.
    template <class F>
    __attribute__((always_inline)) void parallel_for(int chunks, F&& fn) {
        using Body = std::remove_reference_t<F>;
        run(chunks, [](void* body, int chunk, int worker) { (*static_cast<Body*>(body))(chunk, worker); },
            const_cast<void*>(static_cast<const void*>(&fn)));
    }

    using Call = void (*)(void* body, int chunk, int worker);
    void run(int chunks, Call call, void* body);

private:
    void serve(int worker);
    void work(int worker);

    // One job at a time. `ticket_` = job number << 32 | chunks not yet taken: a worker that wakes late either sees no
    // chunks left or fails its compare-exchange, so no job waits for a thread that the system has put aside.
    std::atomic<uint64_t> ticket_{0};
    std::atomic<Call> call_{nullptr};
    std::atomic<void*> body_{nullptr};
    std::atomic<int> chunks_{0};
    std::atomic<int> done_{0};
    std::atomic<uint32_t> epoch_{0};  // what sleeping workers wait on
    std::atomic<bool> stop_{false};
    std::mutex caller_;
    std::mutex failure_mutex_;
    std::exception_ptr failure_;
    int failure_chunk_ = 0;
    std::vector<std::thread> workers_;
};

// Physical cores in this process's affinity mask, at least 1.
int physical_cores();

}  // namespace strata
