// The kernels that were compiled for the host, by unit and name.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "block.h"

namespace strata::simt {

struct Entry {
    std::string unit, name, kinds;  // one letter per parameter: i for integers and pointers, f for floats
    Block::Kernel run;
    int threads;  // of every block; 0: any
};

std::vector<Entry>& entries();

template <class T>
T take(const Argument& argument) {
    static_assert(std::is_pointer_v<T> || std::is_same_v<T, int64_t> || std::is_same_v<T, float>,
                  "a kernel's parameters are pointers, int64_t and float");
    if constexpr (std::is_same_v<T, float>) return argument.real;
    else if constexpr (std::is_pointer_v<T>) return reinterpret_cast<T>(argument.integer);
    else return argument.integer;
}

template <auto kernel, class Signature>
struct Call;

template <auto kernel, class... T>
struct Call<kernel, void (*)(T...)> {
    static void run(const Argument* arguments) { run(arguments, std::index_sequence_for<T...>()); }
    static std::string kinds() { return {(std::is_same_v<T, float> ? 'f' : 'i')...}; }

private:
    template <size_t... i>
    static void run(const Argument* arguments, std::index_sequence<i...>) {
        kernel(take<T>(arguments[i])...);
    }
};

template <auto kernel>
bool remember(const char* unit, const char* name, int threads) {
    using C = Call<kernel, decltype(kernel)>;
    entries().push_back({unit, name, C::kinds(), C::run, threads});
    return true;
}

}  // namespace strata::simt
