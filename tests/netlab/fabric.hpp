// What the laboratory's switch does to frames, without any device: one link per port with a rate
// and a queue in each direction, and between two ports a delay, jitter and loss. All of it may
// change at any time. Times are nanoseconds of one monotonic clock.
//
// A frame occupies its sender's uplink, travels for the delay of the pair, and occupies the
// receiver's downlink. A port forwards the head of a frame before the tail has come, because the
// frames here may be 64 KiB that stand for many small ones, which would follow each other so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace netlab {

struct Frame {
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t wire_bytes = 0;  // with preambles and gaps, and the headers of all its segments
  std::vector<char> data;
};

struct Link {
  double bits_per_s = 0;  // 0: no limit
  std::uint64_t free_ns = 0;
};

struct Path {
  std::uint64_t delay_ns = 0;
  std::uint64_t jitter_ns = 0;  // the delay varies by up to this much; frames keep their order
  double loss = 0;              // probability
  std::uint64_t last_ns = 0;    // when the tail of the frame before arrives
};

struct Port {
  Link up;
  Link down;
  bool silent = false;  // whatever it sends, or is sent, is lost
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
};

class Fabric {
 public:
  Fabric(std::size_t ports, std::uint64_t seed);

  // The frame comes in from its sender; it may be dropped.
  void enter(Frame frame, std::uint64_t now_ns);
  // A frame whose tail has reached its receiver, in order of time.
  std::optional<Frame> next(std::uint64_t now_ns);
  // When there will be something to do.
  std::optional<std::uint64_t> next_ns() const;

  Port& port(std::size_t which) { return ports_[which]; }
  Path& path(std::size_t from, std::size_t to) { return paths_[from * ports_.size() + to]; }
  std::size_t ports() const { return ports_.size(); }

  std::uint64_t queue_bytes = 2u << 20;  // room of every link; what finds it full is dropped

  std::uint64_t dropped = 0;      // for want of room
  std::uint64_t lost = 0;         // by chance or by a silent port
  std::uint64_t late_ns_max = 0;  // how late next() was asked for a frame

 private:
  struct Event {
    std::uint64_t at_ns = 0;
    std::uint64_t number = 0;  // equal times: in order of coming
    std::uint64_t tail_ns = 0;
    bool arrived = false;  // the tail is there; else the head is at the receiver's port
    Frame frame;
  };
  static bool later(const Event& a, const Event& b);

  void push(Event event);
  Event pop();
  // When the frame's head leaves the link, or nothing where the link's queue is full.
  std::optional<std::uint64_t> occupy(Link& link, std::size_t bytes, std::uint64_t now_ns);
  bool by_chance(double probability);

  std::vector<Port> ports_;
  std::vector<Path> paths_;
  std::vector<Event> events_;  // a heap
  std::uint64_t pushed_ = 0;
  std::mt19937_64 random_;
};

}  // namespace netlab
