// The simulator's event queue: a heap, fired in the order of times and, at equal times, in the
// order of scheduling. Allocates only when it grows beyond its largest size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pith {

// Virtual time in whole picoseconds, so that sums are exact and runs repeat bit for bit.
using SimTime = std::uint64_t;

constexpr double sim_seconds(SimTime time) { return static_cast<double>(time) * 1e-12; }
// Rounds to the nearest; lround is not constexpr.
constexpr SimTime whole_picoseconds(double picoseconds) {
  const auto whole = static_cast<SimTime>(picoseconds);
  return picoseconds - static_cast<double>(whole) < 0.5 ? whole : whole + 1;
}
constexpr SimTime sim_time(double seconds) { return whole_picoseconds(seconds * 1e12); }

class SimQueue {
 public:
  using Fire = void (*)(void* object);
  struct Event {
    SimTime time;
    std::uint64_t order;  // the lowest bit marks events that only watch
    Fire fire;
    void* object;
  };
  // An event that `watches` fires like any other, but does not keep the simulation running.
  void push(SimTime time, Fire fire, void* object, bool watches = false) {
    if (!watches) ++working_;
    const Event event{time, (count_++ << 1) | (watches ? 1U : 0U), fire, object};
    std::size_t hole = heap_.size();
    heap_.push_back(event);
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / arity;
      if (!before(event, heap_[parent])) break;
      heap_[hole] = heap_[parent];
      hole = parent;
    }
    heap_[hole] = event;
  }

  // Precondition: has_work().
  Event pop() {
    const Event first = heap_.front();
    const Event moved = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(moved);
    if ((first.order & 1) == 0) --working_;
    return first;
  }

  bool has_work() const { return working_ != 0; }

 private:
  static constexpr std::size_t arity = 4;  // half as deep as a binary heap; children share a line

  static bool before(const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.order < b.order;
  }

  void sink(const Event& moved) {
    const std::size_t size = heap_.size();
    std::size_t hole = 0;
    for (;;) {
      const std::size_t first = hole * arity + 1;
      if (first >= size) break;
      const std::size_t last = first + arity < size ? first + arity : size;
      std::size_t least = first;
      for (std::size_t child = first + 1; child < last; ++child) {
        if (before(heap_[child], heap_[least])) least = child;
      }
      if (!before(heap_[least], moved)) break;
      heap_[hole] = heap_[least];
      hole = least;
    }
    heap_[hole] = moved;
  }

  std::vector<Event> heap_;
  std::uint64_t count_ = 0;
  std::size_t working_ = 0;
};

}  // namespace pith
