#include "comm/links.hpp"

namespace pith {

Links::Links(const Settings& settings, int rank, int ranks, TransportTable table)
    : engine_(std::make_unique<Engine>(ranks)),
      model_(settings, ranks),
      table_(table),
      rank_(rank),
      routes_(static_cast<std::size_t>(ranks)),
      transports_(*engine_) {
  context_.scheduler = &engine_->scheduler();
  context_.arena = &engine_->arena();
  context_.mailbox = &engine_->mailbox();
  context_.compute = &compute_;
  context_.host = &compute_;
  context_.chooser = &model_;
  context_.comm = &state_;
  context_.routes = routes_;
  context_.rank = rank;
  context_.size = ranks;
}

void Links::set_views(bool all, bool any) {
  model_.set_views(all);
  context_.views = any;
  context_.all_views = model_.views();
}

void Links::set_oversubscribed(bool here, bool anywhere) {
  engine_->set_oversubscribed(here);
  model_.set_oversubscribed(anywhere);
}

void Links::set_order(RankOrder order) {
  order_ = std::move(order);
  routes_ = order_.arrange(std::span<const Route>(routes_));
  context_.routes = routes_;
  context_.rank = order_.place_of(rank_);
  context_.order = &order_;
}

void Links::set_hosts(std::span<const std::size_t> names) {
  const std::vector<std::size_t> placed = order_.arrange(names);
  hosts_ = Hosts(std::span<const std::size_t>(placed));
  context_.hosts = &hosts_;
  model_.set_hosts(hosts_.count(), hosts_.most_ranks(), context_.views);
}

void Links::begin_trace(const std::string& path) {
  trace_ = std::make_unique<CallTrace>(path, rank_, context_, routes_);
}

void Links::revoke(const Error& error) {
  engine_->mailbox().quiesce(state_, error);
  transports_.quiesce(state_, error);
}

void Links::close(const Error& why, std::uint64_t deadline_ns) {
  if (!state_.revoked) state_.revoked = why;
  transports_.quiesce(state_, state_.revoked);
  transports_.close(deadline_ns);
  engine_->scheduler().run_ready();
}

}  // namespace pith
