// The module strata.kernels._simt: runs device kernels that were compiled for the host.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <tuple>

#include "registry.h"

namespace nb = nanobind;

namespace strata::simt {

std::vector<Entry>& entries() {
    static std::vector<Entry> all;
    return all;
}

namespace {

using Dims = std::tuple<int64_t, int64_t, int64_t>;

const Entry& find(const std::string& unit, const std::string& name) {
    static const std::map<std::pair<std::string, std::string>, const Entry*> known = [] {
        std::map<std::pair<std::string, std::string>, const Entry*> made;
        for (const Entry& entry : entries())
            if (!made.try_emplace({entry.unit, entry.name}, &entry).second)
                throw std::logic_error("two kernels " + entry.name + " in unit " + entry.unit);
        return made;
    }();
    const auto found = known.find({unit, name});
    if (found == known.end()) throw nb::key_error(("no kernel " + name + " in unit " + unit).c_str());
    return *found->second;
}

std::vector<Argument> arguments_of(const Entry& entry, const nb::tuple& given) {
    const size_t count = entry.kinds.size();
    if (given.size() != count)
        throw nb::type_error((entry.name + " takes " + std::to_string(count) + " arguments, found " +
                              std::to_string(given.size())).c_str());
    std::vector<Argument> arguments(count);
    for (size_t i = 0; i < count; ++i) {
        const bool real = nb::isinstance<nb::float_>(given[i]);
        if (real != (entry.kinds[i] == 'f'))
            throw nb::type_error((entry.name + ": argument " + std::to_string(i) + " must be " +
                                  (real ? "an int" : "a float")).c_str());
        if (real) arguments[i].real = static_cast<float>(nb::cast<double>(given[i]));
        else arguments[i].integer = nb::cast<int64_t>(given[i]);
    }
    return arguments;
}

void run_blocks(const Entry& entry, Grid grid, int threads, size_t shared, const Argument* arguments, uint64_t order) {
    // Static shared arrays exist once, so one launch runs at a time.
    static std::mutex one;
    const std::lock_guard<std::mutex> lock(one);
    static Block block;
    std::vector<int> blocks;
    arrange(blocks, grid.x * grid.y * grid.z, order);
    for (const int number : blocks) {
        const Grid at = {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
        block.run(entry.run, arguments, grid, at, threads, shared, order);
    }
}

void launch(const std::string& unit, const std::string& name, Dims grid, int64_t threads, int64_t shared,
            const nb::tuple& given, uint64_t order) {
    const Entry& entry = find(unit, name);
    const auto [x, y, z] = grid;
    if (x < 1 || y < 1 || z < 1 || x > INT32_MAX || y > 65535 || z > 65535 || x * y * z > INT32_MAX)
        throw std::invalid_argument(name + ": a grid of (" + std::to_string(x) + ", " + std::to_string(y) + ", " +
                                    std::to_string(z) + ") blocks");
    if (threads < 1 || threads > 1024 || (entry.threads && threads != entry.threads))
        throw std::invalid_argument(name + ": blocks of " + std::to_string(threads) + " threads" +
                                    (entry.threads ? ", made for " + std::to_string(entry.threads) : ""));
    if (shared < 0 || shared > 227 << 10)
        throw std::invalid_argument(name + ": " + std::to_string(shared) + " bytes of shared memory");
    const std::vector<Argument> arguments = arguments_of(entry, given);
    nb::gil_scoped_release released;
    try {
        run_blocks(entry, {static_cast<int>(x), static_cast<int>(y), static_cast<int>(z)}, static_cast<int>(threads),
                   static_cast<size_t>(shared), arguments.data(), order);
    } catch (const std::runtime_error& error) {
        throw std::runtime_error(name + ", " + error.what());
    }
}

std::vector<std::tuple<std::string, std::string>> kernels() {
    std::vector<std::tuple<std::string, std::string>> all;
    for (const Entry& entry : entries()) all.emplace_back(entry.unit, entry.name);
    std::sort(all.begin(), all.end());
    return all;
}

}  // namespace
}  // namespace strata::simt

NB_MODULE(_simt, m) {
    m.def("launch", &strata::simt::launch, nb::arg("unit"), nb::arg("name"), nb::arg("grid"), nb::arg("block"),
          nb::arg("shared"), nb::arg("arguments"), nb::arg("order"));
    m.def("kernels", &strata::simt::kernels);
}
