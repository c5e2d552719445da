#include "control/control_tree.hpp"

#include <algorithm>
#include <utility>

#include "control/control_messages.hpp"

namespace pith {

namespace {

constexpr std::uint64_t awaited_ns = 300'000'000;  // after this an expected child is probed
// Ranks that know of this departure do not connect any more; others may be about to.
constexpr std::uint64_t farewell_ns = 100'000'000;

}  // namespace

std::vector<int> ControlTree::expected_children() const {
  const std::vector<int> living = context_.membership.living();
  const auto self = std::ranges::find(living, context_.options.rank) - living.begin();
  const auto fanout = static_cast<std::size_t>(context_.options.fanout);
  const std::size_t first = static_cast<std::size_t>(self) * fanout + 1;
  const std::size_t last = std::min(living.size(), first + fanout);
  if (first >= last) return {};
  return {living.begin() + static_cast<std::ptrdiff_t>(first),
          living.begin() + static_cast<std::ptrdiff_t>(last)};
}

bool ControlTree::is_complete() const {
  return std::ranges::all_of(expected_children(),
                             [this](int rank) { return children_.contains(rank); });
}

bool ControlTree::refresh() {
  const std::vector<int> living = context_.membership.living(context_.options.rank);
  int parent = -1;
  for (auto place = static_cast<int>(living.size()) - 1; place > 0;) {
    place = (place - 1) / context_.options.fanout;
    parent = living[static_cast<std::size_t>(place)];
    if (!passed_by_.contains(parent)) break;
  }
  if (parent == parent_) return false;
  const int old = std::exchange(parent_, parent);
  parent_since_ns_ = context_.now_ns;
  leave_told_ = leave_answered_ = false;
  // A parent that is only passed by stays connected, so that it is heard when it wakes up.
  if (old >= 0 && context_.membership.lives(old) && !passed_by_.contains(old)) wire_.hang_up(old);
  return true;
}

bool ControlTree::heard(int from) {
  unanswered_since_ns_.erase(from);
  return passed_by_.erase(from) > 0;
}

bool ControlTree::can_pass_by_parent() const {
  return parent_ > 0 && context_.membership.living(parent_ - 1).size() > 0;
}

bool ControlTree::try_to_leave(bool ends) {
  leaving_ = true;
  process_ends_ |= ends;
  // A child that connected after this rank had left would find nobody.
  const bool waited = leave_told_once_ && context_.now_ns - parent_since_ns_ > farewell_ns;
  if (waited || is_complete()) tell_all_of_leaving();
  return leave_told_ && (is_root() || leave_answered_);
}

void ControlTree::leave_now() {
  if (leaving_) tell_all_of_leaving();
}

void ControlTree::tell_all_of_leaving() {
  if (leave_told_) return;
  leave_told_ = leave_told_once_ = true;
  spread(departure_message(context_.options.rank, process_ends_), -1);
}

void ControlTree::tell_of_leaving(int child) {
  if (leave_told_) send(child, departure_message(context_.options.rank, process_ends_));
}

void ControlTree::probe_late_children() {
  std::map<int, std::uint64_t> awaited;
  for (const int rank : expected_children()) {
    if (children_.contains(rank)) continue;
    const auto known = awaited_since_ns_.find(rank);
    std::uint64_t since_ns = known == awaited_since_ns_.end() ? context_.now_ns : known->second;
    if (context_.now_ns - since_ns > awaited_ns) {
      wire_.probe(rank);
      since_ns = context_.now_ns;
    }
    awaited.emplace(rank, since_ns);
  }
  awaited_since_ns_.swap(awaited);
}

void ControlTree::spread(const std::string& text, int except) {
  if (parent_ >= 0 && parent_ != except && context_.membership.lives(parent_))
    wire_.send(parent_, text);
  for (const int child : children_) {
    if (child != except) wire_.send(child, text);
  }
}

void ControlTree::send_up(const std::string& text) {
  if (is_root()) return local_(text);
  wire_.send(parent_, text);
}

void ControlTree::send_down(const std::string& text) {
  for (const int child : children_) wire_.send(child, text);
}

void ControlTree::ask(int neighbour, const std::string& text) {
  const auto [asked, first] = unanswered_since_ns_.try_emplace(neighbour, context_.now_ns);
  if (first || context_.since(asked->second) <= silent_s) wire_.send(neighbour, text);
}

void ControlTree::ask_children(const std::string& text) {
  for (const int child : children_) ask(child, text);
}

void ControlTree::answer(int from) {
  const bool neighbour = from == parent_ || from > context_.options.rank;
  if (neighbour) wire_.send(from, message(MessageKind::pong).take());
}

}  // namespace pith
