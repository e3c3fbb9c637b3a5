#include "answerer.h"

#include <chrono>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

void pause_briefly() {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

template <class T>
T load(const T& word) {
    return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}

}  // namespace

Answerer::Answerer(Native& native, const Place& place, const std::map<int64_t, const Bank*>& banks, int64_t spin_us)
    : native_(native), place_(place), banks_(banks), spin_us_(spin_us) {
    for (const auto& [layer, bank] : banks)
        if (bank->hidden() != place.hidden)
            throw std::invalid_argument("layer " + std::to_string(layer) + " has " + std::to_string(bank->hidden()) +
                                        " values a row, the mailbox " + std::to_string(place.hidden));
    thread_ = std::thread([this] { serve(); });
}

Answerer::~Answerer() {
    stop_.store(true);
    thread_.join();
}

void Answerer::serve() {
    auto active = Clock::now();
    auto awake = std::make_unique<Pool::Hot>(native_.pool());
    while (!stop_.load(std::memory_order_relaxed)) {
        if (answer()) {
            active = Clock::now();
            if (!awake) awake = std::make_unique<Pool::Hot>(native_.pool());
            continue;
        }
        const auto idle = Clock::now() - active;
        if (idle < std::chrono::microseconds(spin_us_)) {
            pause_briefly();
            continue;
        }
        awake.reset();
        // The first request after a rest waits for the end of this.
        std::this_thread::sleep_for(std::chrono::microseconds(idle < std::chrono::seconds(1) ? 50 : 500));
    }
}

bool Answerer::answer() {
    Mailbox& box = *place_.box;
    const int64_t request = load(box.request);
    if (request == box.reply || stalled_.load(std::memory_order_relaxed)) return false;
    try {
        compute();
    } catch (const std::exception& error) {
        {
            std::lock_guard<std::mutex> lock(log_mutex_);
            failure_ = error.what();
        }
        box.failed = request;
    }
    __atomic_store_n(&box.reply, request, __ATOMIC_RELEASE);
    return true;
}

void Answerer::compute() {
    const auto began = Clock::now();
    const int64_t layer = load(place_.box->layer), rows = load(place_.box->rows), top_k = load(place_.box->top_k);
    if (rows < 1 || rows > place_.most_rows || top_k < 1 || top_k > place_.most_entries / rows)
        throw std::out_of_range("a request of " + std::to_string(rows) + " rows with " + std::to_string(top_k) +
                                " experts");
    const Bank* bank = nullptr;
    {
        std::lock_guard<std::mutex> lock(banks_mutex_);
        const auto found = banks_.find(layer);
        if (found == banks_.end()) throw std::out_of_range("a request for layer " + std::to_string(layer));
        bank = found->second;
    }
    const int64_t distinct =
        run_experts_apart(native_, *bank, {place_.x, rows, place_.ids, static_cast<int>(top_k)}, place_.answers);
    int64_t entries = 0;
    for (int64_t i = 0; i < rows * top_k; ++i) entries += place_.ids[i] >= 0;
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - began).count();
    keep({layer, rows, entries, distinct, took});
}

void Answerer::keep(const Done& done) {
    std::lock_guard<std::mutex> lock(log_mutex_);
    if (log_.size() == kept) log_.erase(log_.begin(), log_.begin() + kept / 2);
    log_.push_back(done);
}

std::vector<Answerer::Done> Answerer::drain() {
    std::lock_guard<std::mutex> lock(log_mutex_);
    return std::exchange(log_, {});
}

std::string Answerer::failure() {
    std::lock_guard<std::mutex> lock(log_mutex_);
    return std::exchange(failure_, {});
}

void Answerer::use(int64_t layer, const Bank* bank) {
    std::lock_guard<std::mutex> lock(banks_mutex_);
    banks_[layer] = bank;
}

}  // namespace strata
