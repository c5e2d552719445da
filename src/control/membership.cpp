#include "control/membership.hpp"

#include <algorithm>

#include "control/control_messages.hpp"

namespace pith {

namespace {

// A rank that knows that an unreachable one has left in order says so within this time.
constexpr std::uint64_t unreached_ns = 300'000'000;

}  // namespace

std::vector<int> Membership::living(int last) const {
  std::vector<int> living;
  for (int rank = 0; rank <= last; ++rank) {
    if (rank == own_ || lives(rank)) living.push_back(rank);
  }
  return living;
}

bool Membership::any_died() const {
  return std::ranges::any_of(dead_, [this](const auto& death) { return is_dead(death.first); });
}

std::vector<int> Membership::gone_for_good() const {
  std::set<int> ranks = ended_;
  for (const auto& [rank, how] : dead_) {
    if (is_dead(rank)) ranks.insert(rank);
  }
  return {ranks.begin(), ranks.end()};
}

std::string Membership::cause_of(int rank) const {
  if (ended_.contains(rank)) return process_ended;
  const auto found = dead_.find(rank);
  return found == dead_.end() ? std::string() : found->second;
}

bool Membership::add_dead(int rank, std::string_view how) {
  return exists(rank) && !left_.contains(rank) && dead_.emplace(rank, how).second;
}

Membership::News Membership::add_left(int rank, bool ended) {
  const bool new_end = ended && ended_.insert(rank).second;
  if (left_.insert(rank).second) return News::left;
  return new_end ? News::ended : News::nothing;
}

void Membership::add_unreached(int rank, std::string_view how, std::uint64_t now_ns) {
  unreached_.insert_or_assign(rank, Unreached{std::string(how), now_ns});
}

std::vector<std::pair<int, std::string>> Membership::overdue(std::uint64_t now_ns) const {
  std::vector<std::pair<int, std::string>> overdue;
  for (const auto& [rank, unreached] : unreached_) {
    if (is_gone(rank) || now_ns - unreached.since_ns <= unreached_ns) continue;
    overdue.emplace_back(rank, unreached.how);
  }
  return overdue;
}

void Membership::pack(Packer& packer) const {
  packer.value(static_cast<std::uint32_t>(dead_.size()));
  for (const auto& [rank, how] : dead_) packer.value(rank).text(how);
  packer.numbers({left_.begin(), left_.end()}).numbers({ended_.begin(), ended_.end()});
}

}  // namespace pith
