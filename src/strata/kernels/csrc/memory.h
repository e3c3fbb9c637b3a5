// Scratch memory that is kept between calls: one growing block per user.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace strata {

class Scratch {
public:
    Scratch() = default;
    Scratch(Scratch&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
        other.data_ = nullptr;
        other.bytes_ = 0;
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() { std::free(data_); }

    // At least `bytes` bytes, aligned to 64; the content is not kept. Throws std::bad_alloc.
    void* reserve(size_t bytes);

private:
    void* data_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace strata
