#include "fabric.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace netlab {

Fabric::Fabric(std::size_t ports, std::uint64_t seed)
    : ports_(ports), paths_(ports * ports), random_(seed) {}

bool Fabric::later(const Event& a, const Event& b) {
  return std::pair(a.at_ns, a.number) > std::pair(b.at_ns, b.number);
}

void Fabric::push(Event event) {
  event.number = pushed_++;
  events_.push_back(std::move(event));
  std::push_heap(events_.begin(), events_.end(), later);
}

Fabric::Event Fabric::pop() {
  std::pop_heap(events_.begin(), events_.end(), later);
  Event event = std::move(events_.back());
  events_.pop_back();
  return event;
}

bool Fabric::by_chance(double probability) {
  return probability > 0 && std::uniform_real_distribution<double>()(random_) < probability;
}

std::optional<std::uint64_t> Fabric::occupy(Link& link, std::size_t bytes, std::uint64_t now_ns) {
  if (link.bits_per_s <= 0) return now_ns;
  const double bytes_per_ns = link.bits_per_s / 8e9;
  const std::uint64_t start_ns = std::max(link.free_ns, now_ns);
  const double waiting = static_cast<double>(start_ns - now_ns) * bytes_per_ns;
  if (waiting > static_cast<double>(queue_bytes)) {
    ++dropped;
    return std::nullopt;
  }
  link.free_ns = start_ns + static_cast<std::uint64_t>(
                                std::llround(static_cast<double>(bytes) / bytes_per_ns));
  return start_ns;
}

void Fabric::enter(Frame frame, std::uint64_t now_ns) {
  Port& sender = ports_[frame.from];
  Path& path = this->path(frame.from, frame.to);
  sender.sent_bytes += frame.wire_bytes;
  if (sender.silent || by_chance(path.loss)) {
    ++lost;
    return;
  }
  const std::optional<std::uint64_t> start_ns = occupy(sender.up, frame.wire_bytes, now_ns);
  if (!start_ns) return;
  const std::uint64_t length_ns = sender.up.bits_per_s > 0 ? sender.up.free_ns - *start_ns : 0;
  std::uint64_t delay_ns = path.delay_ns;
  if (path.jitter_ns > 0) {
    const std::uint64_t least_ns = delay_ns - std::min(delay_ns, path.jitter_ns);
    delay_ns =
        std::uniform_int_distribution<std::uint64_t>(least_ns, delay_ns + path.jitter_ns)(random_);
  }
  Event event;
  event.at_ns = std::max(*start_ns + delay_ns, path.last_ns);
  event.tail_ns = path.last_ns = event.at_ns + length_ns;
  event.frame = std::move(frame);
  push(std::move(event));
}

std::optional<Frame> Fabric::next(std::uint64_t now_ns) {
  while (!events_.empty() && events_.front().at_ns <= now_ns) {
    Event event = pop();
    Port& receiver = ports_[event.frame.to];
    if (receiver.silent) {
      ++lost;
      continue;
    }
    if (event.arrived) {
      late_ns_max = std::max(late_ns_max, now_ns - event.at_ns);
      receiver.received_bytes += event.frame.wire_bytes;
      return std::move(event.frame);
    }
    if (!occupy(receiver.down, event.frame.wire_bytes, event.at_ns)) continue;
    if (receiver.down.bits_per_s > 0) {
      receiver.down.free_ns = std::max(receiver.down.free_ns, event.tail_ns);
      event.at_ns = receiver.down.free_ns;
    } else {
      event.at_ns = event.tail_ns;
    }
    event.arrived = true;
    push(std::move(event));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Fabric::next_ns() const {
  if (events_.empty()) return std::nullopt;
  return events_.front().at_ns;
}

}  // namespace netlab
