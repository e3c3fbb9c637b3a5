// A thread that computes the experts that a GPU asks for through a mailbox. It makes no call of the device's driver and
// needs nothing of the interpreter, so nothing that waits for the GPU can hold it up.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "mailbox.h"
#include "native.h"
#include "bank.h"

namespace strata {

// Where a mailbox and its arrays lie, and how large a request may be.
struct Place {
    Mailbox* box;
    const int32_t* ids;
    const float* x;
    float* answers;
    int64_t most_rows, most_entries, hidden;
};

class Answerer {
public:
    // One answered request: (layer, rows, entries, distinct experts, nanoseconds).
    using Done = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>;

    // `native` and the banks (by layer) must outlive this object. `spin_us`: how long after a request it goes on
    // polling without a pause, with the pool's workers awake.
    Answerer(Native& native, const Place& place, const std::map<int64_t, const Bank*>& banks, int64_t spin_us);
    ~Answerer();
    Answerer(const Answerer&) = delete;
    Answerer& operator=(const Answerer&) = delete;

    // What was answered since the last call, the latest `kept` of it.
    std::vector<Done> drain();
    // Why the last request that failed did; empty when none has since the last call.
    std::string failure();
    // While set, requests stay unanswered: for tests of the time limit.
    void stall(bool on) { stalled_.store(on); }
    // The layer's experts moved; no request for them may be under way.
    void use(int64_t layer, const Bank* bank);

private:
    static constexpr size_t kept = 1 << 16;

    void serve();
    bool answer();
    void compute();
    void keep(const Done& done);

    Native& native_;
    const Place place_;
    std::map<int64_t, const Bank*> banks_;
    const int64_t spin_us_;
    std::atomic<bool> stop_{false}, stalled_{false};
    std::mutex log_mutex_, banks_mutex_;
    std::vector<Done> log_;
    std::string failure_;
    std::thread thread_;
};

}  // namespace strata
