// A call among some of a call's ranks, for algorithms that know nothing of the others. Its messages
// have the same names as the whole call's: two ranks must not use a lane in both.
#pragma once

#include "collectives/strands.hpp"

namespace pith {

class SubCall {
 public:
  // member(i): the rank of the whole call that is rank i of `size` here. `views`: whether every two
  // of them share memory. Must not outlive the whole call.
  template <class Member>
  SubCall(const Call& whole, int size, bool views, Member member)
      : routes_(whole.host_compute(), static_cast<std::size_t>(size) * sizeof(Route)),
        context_(whole.context()),
        call_(context_, whole.number(), whole.digest()) {
    auto* routes = reinterpret_cast<Route*>(routes_.bytes().data);
    for (int i = 0; i < size; ++i) {
      routes[i] = whole.route(member(i));
      if (member(i) != whole.rank()) continue;
      context_.rank = i;
      routes[i].peer = named_rank(whole, whole.rank());
    }
    context_.routes = {routes, static_cast<std::size_t>(size)};
    context_.order = &order_by_rank;
    context_.hosts = nullptr;
    context_.size = size;
    context_.views = context_.all_views = views;
    context_.chooser = nullptr;  // it chooses for the whole call's ranks
  }
  SubCall(const SubCall&) = delete;
  SubCall& operator=(const SubCall&) = delete;

  Call& call() { return call_; }

 private:
  Scratch routes_;
  CallContext context_;
  Call call_;
};

}  // namespace pith
