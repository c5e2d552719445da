// Hosts for ranks in virtual time, and what hierarchy=host must do to them: each slice of the
// vector goes through the flat scheme among hosts, with the sums of their ranks as gradients.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/hosts.hpp"
#include "collectives/patterns.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

inline std::vector<std::vector<int>> layouts_of(int ranks) {
  std::vector<std::vector<int>> layouts;
  const auto add = [&](auto host_of) {
    std::vector<int> layout;
    for (int r = 0; r < ranks; ++r) layout.push_back(host_of(r));
    layouts.push_back(layout);
  };
  add([](int r) { return r / 2; });                  // the last may be smaller
  add([](int r) { return r % 2; });                  // not one after the other
  add([](int r) { return r < 3 ? 0 : 1 + r % 3; });  // unequal
  if (ranks >= 6) add([=](int r) { return r < ranks - 2 ? 0 : 1; });
  return layouts;
}

inline bool has_several_hosts(const std::vector<int>& layout) {
  const Hosts hosts{std::span<const int>(layout)};
  return hosts.count() > 1 && !hosts.alone();
}

inline std::unique_ptr<World> world_with_hosts(const SparseCase& c, SimConfig config = {}) {
  auto world = std::make_unique<World>(world_of(c, config));
  if (!c.hosts.empty()) world->set_hosts(c.hosts);
  return world;
}

// The flat program of every slice. Sums are exact where gradients are integers.
class SliceTwins {
 public:
  explicit SliceTwins(const SparseCase& c) : case_(c), hosts_(std::span<const int>(case_.hosts)) {
    for (int s = 0; s < hosts_.slices(); ++s) {
      SparseCase flat = c;
      flat.ranks = hosts_.count();
      flat.hosts.clear();
      flat.average = false;
      flat.spec = c.spec.substr(0, c.spec.find(",hierarchy"));
      for (std::size_t t = 0; t < c.counts.size(); ++t) flat.counts[t] = part(t, s).size;
      programs_.push_back(std::make_unique<SparseProgram>(flat));
      worlds_.push_back(world_with_hosts(flat));
    }
  }

  // The step that the program has just made, with the gradients that it holds. Empty is good.
  std::string check(SparseProgram& program) {
    for (int s = 0; s < hosts_.slices(); ++s) {
      std::string failure = run(program, s);
      for (std::size_t t = 0; t < case_.counts.size() && failure.empty(); ++t) {
        failure = compare(program, s, t);
      }
      if (!failure.empty()) return fmt::format("slice {}: {}", s, failure);
    }
    return {};
  }

 private:
  Range part(std::size_t tensor, int slice) const {
    return block(case_.counts[tensor], hosts_.slices(), slice);
  }
  SparseProgram& twin(int slice) { return *programs_[static_cast<std::size_t>(slice)]; }

  std::string run(SparseProgram& program, int slice) {
    for (int h = 0; h < hosts_.count(); ++h) {
      for (std::size_t t = 0; t < case_.counts.size(); ++t) {
        const Range range = part(t, slice);
        std::vector<float>& sum = twin(slice).gradient(h, t);
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (const int rank : hosts_.ranks_of(h)) {
          for (std::size_t i = 0; i < range.size; ++i) {
            sum[i] += program.gradient(rank, t)[range.begin + i];
          }
        }
      }
    }
    return twin(slice).step(*worlds_[static_cast<std::size_t>(slice)]);
  }

  std::string compare(SparseProgram& program, int slice, std::size_t t) {
    const Range range = part(t, slice);
    const float divisor = case_.average ? float(case_.ranks) : 1.0f;
    for (int r = 0; r < case_.ranks; ++r) {
      const std::vector<float> residual = program.residual(r, t);
      const bool owns = hosts_.index_of(r) == slice;
      const std::vector<float> kept = twin(slice).residual(hosts_.host_of(r), t);
      for (std::size_t i = 0; i < range.size; ++i) {
        const std::size_t at = range.begin + i;
        if (program.result(r, t)[at] != twin(slice).result(0, t)[i] / divisor) {
          return fmt::format("rank {}, tensor {}, element {}: another result", r, t, at);
        }
        if (residual[at] != (owns ? kept[i] : 0)) {
          return fmt::format("rank {}, tensor {}, element {}: another residual", r, t, at);
        }
      }
    }
    return {};
  }

  SparseCase case_;
  Hosts hosts_;
  std::vector<std::unique_ptr<SparseProgram>> programs_;
  std::vector<std::unique_ptr<World>> worlds_;
};

}  // namespace pith::test
