// What the ranks of a communicator ask each other when it is to grow: whether all mean the same
// growth, and the id by which they meet the ranks that join. Waits and sends nothing, as Split.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/children/child_agreement.hpp"
#include "startup/unique_id.hpp"

namespace pith {

// What one rank says. `id`: null on all ranks but the one that made it. `unable`: why this rank
// cannot take part; the others are told.
struct GrowWish {
  int ranks = 0;
  const UniqueId* id = nullptr;
  Error unable = {};
};

class Grow {
 public:
  // `parent`, `members`, `own`, `rounds`: as for Split. `job`: the parent's secret, under which the
  // id's goes over connections that are not encrypted. `call`: its number on the parent.
  Grow(CommKey parent, const std::vector<int>& members, int own, ChildRounds& rounds,
       const Secret& job, std::uint32_t call, const GrowWish& wish);

  Question question() const;
  // Every rank gets the same answer; called once.
  void hear(const GatherResult& result);

  // With an error, too, where an id was given.
  const UniqueId* id() const { return id_.members > 0 ? &id_ : nullptr; }
  const Error& error() const { return error_; }

 private:
  // What a rank has said.
  struct Word {
    int ranks = 0;
    std::string id;  // as sent; empty: none
    std::string unable;
    std::uint32_t call = 0;
  };

  Error judge(const GatherResult& result);
  Error compare(const std::vector<Word>& words);
  static Error compare_calls(const std::vector<Word>& words);
  void take_id(std::string_view sent);
  Secret masked(Secret secret, const std::string& address) const;

  const GatherKey key_;
  const std::vector<int>& members_;
  const int own_;
  const Secret job_;
  const Error unable_;
  const CallNote call_;
  std::string blob_;
  UniqueId id_;
  Error error_;
};

}  // namespace pith
