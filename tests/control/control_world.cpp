#include "control_world.hpp"

#include <algorithm>

namespace pith::test {

namespace {

constexpr std::uint64_t ms = 1'000'000;
constexpr std::uint64_t patience_ns = 1'000 * ms;

}  // namespace

ControlWorld::ControlWorld(int ranks, int fanout, std::uint64_t seed, double timeout_s, Host host,
                           Costs costs)
    : host_(std::move(host)),
      costs_(costs),
      random_(seed),
      nodes_(static_cast<std::size_t>(ranks)) {
  for (int rank = 0; rank < ranks; ++rank) {
    Node& node = nodes_[at(rank)];
    ControlOptions options;
    options.rank = rank;
    options.ranks = ranks;
    options.fanout = fanout;
    options.timeout_s = timeout_s;
    node.wire = std::make_unique<Wire>(*this, rank);
    node.plane = std::make_unique<ControlPlane>(options, *node.wire);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    plane(rank).start(now_ns());
    schedule(delay(), [this, rank] { turn(rank); });
  }
}

void ControlWorld::schedule(std::uint64_t delay_ns, std::function<void()> run) {
  if (host_.after) return host_.after(delay_ns, std::move(run));
  events_.push({now_ns_ + delay_ns, events_made_++, std::move(run)});
}

void ControlWorld::at_ms(double after_ms, std::function<void()> action) {
  const auto at_ns = static_cast<std::uint64_t>(after_ms * double(ms));
  schedule(at_ns > now_ns() ? at_ns - now_ns() : 0, std::move(action));
}

// Mostly short; now and then somebody is late.
std::uint64_t ControlWorld::delay() {
  if (costs_.latency_ns > 0) return costs_.latency_ns;
  const auto most = static_cast<std::uint64_t>(pick(0, 9) == 0 ? 20 * ms : ms);
  return std::uniform_int_distribution<std::uint64_t>(1000, most)(random_);
}

// When the rank has done what is before it, and then this.
std::uint64_t ControlWorld::occupy(int rank, std::size_t bytes, std::uint64_t more_ns) {
  const double bytes_ns = static_cast<double>(bytes) * costs_.byte_ns;
  std::uint64_t& until_ns = nodes_[at(rank)].busy_until_ns;
  until_ns = std::max(until_ns, now_ns()) + costs_.message_ns + more_ns +
             static_cast<std::uint64_t>(bytes_ns);
  return until_ns;
}

void ControlWorld::run_until_ms(double until_ms) {
  const auto until = static_cast<std::uint64_t>(until_ms * double(ms));
  while (!events_.empty() && events_.top().at_ns <= until) {
    const Event event = events_.top();
    events_.pop();
    now_ns_ = event.at_ns;
    event.run();
  }
  now_ns_ = std::max(now_ns_, until);
}

// --- the life of a rank -----------------------------------------------------------------------

void ControlWorld::turn(int rank) {
  if (fate(rank) == Fate::dead || fate(rank) == Fate::left) return;
  if (hears(rank)) plane(rank).turn(now_ns());
  schedule(100 * ms, [this, rank] { turn(rank); });
}

void ControlWorld::turn_soon(int rank) {
  schedule(1 + delay() / 8, [this, rank] {
    if (hears(rank)) plane(rank).turn(now_ns());
  });
}

void ControlWorld::close_all(int rank, Message::What how) {
  Node& node = nodes_[at(rank)];
  for (const auto& [peer, link] : node.links) {
    link->closed[rank == link->high] = true;
    post(link, peer, {how, {}});
  }
  node.links.clear();
}

void ControlWorld::kill(int rank) {
  if (!is_open(rank)) return;
  nodes_[at(rank)].fate = Fate::dead;
  close_all(rank, Message::What::end);
  release(rank);
}

void ControlWorld::wake(int rank) {
  if (fate(rank) != Fate::stopped) return;
  nodes_[at(rank)].fate = Fate::lives;
  release(rank);
}

// In their order; those that come to the dead are refused.
void ControlWorld::release(int rank) {
  for (const Held& held : std::exchange(nodes_[at(rank)].held, {})) {
    arrive(held.link, rank, held.message);
  }
}

void ControlWorld::leave(int rank) {
  if (fate(rank) != Fate::lives) return;
  nodes_[at(rank)].fate = Fate::leaving;
  nodes_[at(rank)].leaves_since_ns = now_ns();
  try_to_leave(rank);
}

void ControlWorld::try_to_leave(int rank) {
  Node& node = nodes_[at(rank)];
  if (node.fate != Fate::leaving) return;
  const std::uint64_t took = now_ns() - node.leaves_since_ns;
  if (!node.plane->try_to_leave() && took < patience_ns) {
    return schedule(ms, [this, rank] { try_to_leave(rank); });
  }
  longest_leave_ns_ = std::max(longest_leave_ns_, took);
  node.plane->close();
  node.fate = Fate::left;
  close_all(rank, Message::What::goodbye);
}

// --- connections ------------------------------------------------------------------------------

void ControlWorld::send(int from, int to, std::string message) {
  Node& node = nodes_[at(from)];
  auto found = node.links.find(to);
  if (found == node.links.end()) {
    if (to > from) return;  // it calls us
    auto link = std::make_shared<Connection>();
    link->low = to;
    link->high = from;
    found = node.links.emplace(to, std::move(link)).first;
  }
  Traffic& traffic = sent_[{from, to}];
  ++traffic.messages;
  traffic.bytes += message.size();
  ++node.sent.messages;
  node.sent.bytes += message.size();
  post(found->second, to, {Message::What::text, std::move(message)});
}

void ControlWorld::probe(int from, int to) {
  schedule(delay(), [this, from, to] {
    if (is_open(to) || !hears(from)) return;
    plane(from).on_unreachable(to, "cannot be reached");
    turn_soon(from);
  });
}

void ControlWorld::hang_up(int from, int to) {
  Node& node = nodes_[at(from)];
  const auto found = node.links.find(to);
  if (found == node.links.end()) return;
  const Link link = found->second;
  post(link, to, {Message::What::goodbye, {}});
  link->closed[from == link->high] = true;
  node.links.erase(found);
}

void ControlWorld::post(const Link& link, int to, Message message) {
  const int from = to == link->low ? link->high : link->low;
  const std::uint64_t sent_ns = occupy(from, message.text.size(), 0);
  std::uint64_t& last = link->last_ns[to == link->high];
  last = std::max(last + 1, sent_ns + delay());
  schedule(last - now_ns(),
           [this, link, to, message = std::move(message)] { come(link, to, message); });
}

// One message after the other.
void ControlWorld::come(const Link& link, int to, const Message& message) {
  if (costs_.latency_ns == 0) return arrive(link, to, message);
  const bool called = to == link->low && !link->accepted;
  const std::uint64_t done_ns =
      occupy(to, message.text.size(), called ? costs_.connect_ns : std::uint64_t{0});
  schedule(done_ns - now_ns(), [this, link, to, message] { arrive(link, to, message); });
}

void ControlWorld::arrive(const Link& link, int to, const Message& message) {
  const int from = to == link->low ? link->high : link->low;
  Node& node = nodes_[at(to)];
  if (!link->accepted && link->closed[from == link->high]) return;
  if (fate(to) == Fate::stopped) {
    node.held.push_back({link, message});
    return;
  }
  if (!hears(to)) {
    // Nobody listens any more: the caller is refused.
    if (link->accepted) return;
    link->accepted = true;
    schedule(delay(), [this, link, from, to] {
      if (!hears(from) || link->closed[from == link->high]) return;
      nodes_[at(from)].links.erase(to);
      plane(from).on_unreachable(to, "cannot be reached");
      turn_soon(from);
    });
    return;
  }
  if (to == link->low && !link->accepted) {
    link->accepted = true;
    if (const auto old = node.links.find(from); old != node.links.end()) {
      old->second->closed[to == old->second->high] = true;
    }
    node.links[from] = link;
  }
  const auto current = node.links.find(from);
  if (current == node.links.end() || current->second != link) return;
  switch (message.what) {
    case Message::What::text:
      plane(to).on_message(from, message.text);
      break;
    case Message::What::end:
      node.links.erase(current);
      plane(to).on_lost(from, "its process has ended");
      break;
    case Message::What::goodbye:
      node.links.erase(current);
      plane(to).on_hung_up(from);
      break;
  }
  turn_soon(to);
}

}  // namespace pith::test
