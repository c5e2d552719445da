// The engine that drives one rank of a communicator, and the rank's routes to all others.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/hosts.hpp"
#include "comm/call_trace.hpp"
#include "comm/open_transports.hpp"
#include "core/engine.hpp"
#include "kernels/host_compute.hpp"
#include "model/model.hpp"
#include "settings/settings.hpp"
#include "transport/transport_table.hpp"

namespace pith {

class Links {
 public:
  // `table`: the transports to choose from; must outlive this object.
  Links(const Settings& settings, int rank, int ranks, TransportTable table);
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  Engine& engine() { return *engine_; }
  HostCompute& compute() { return compute_; }
  CommState& state() { return state_; }
  const CommState& state() const { return state_; }
  const CallContext& context() const { return context_; }
  // Chooses the algorithms of calls.
  Model& model() { return model_; }
  const Model& model() const { return model_; }
  TransportTable transport_table() const { return table_; }
  int rank() const { return rank_; }
  int size() const { return context_.size; }
  // Tells which ranks share a host, and this rank's place there.
  const Hosts& hosts() const { return hosts_; }
  const RankOrder& order() const { return order_; }
  const Route& route_to(int rank) const {
    return routes_[static_cast<std::size_t>(order_.place_of(rank))];
  }
  CallTrace* trace() { return trace_.get(); }  // null: tracing is off
  OpenTransports& transports() { return transports_; }

  // Whether all ranks are threads of this process.
  bool is_one_process() const { return one_process_; }
  void set_one_process() { one_process_ = true; }

  // Called in this order while the ranks connect.
  void set_views(bool all, bool any);  // whether all, or any two, ranks reach each other's memory
  void set_oversubscribed(bool here, bool anywhere);  // whether a host has more ranks than cores
  void set_route(int rank, const Route& route) { routes_[static_cast<std::size_t>(rank)] = route; }
  // From then on algorithms visit the ranks in this order.
  void set_order(RankOrder order);
  // One name per rank, equal for ranks on the same host.
  void set_hosts(std::span<const std::size_t> names);
  void begin_trace(const std::string& path);
  // Sets the function that is told of a call's failure.
  void on_failure(void* context, void (*hear)(void* context, const Error& error)) {
    context_.revoke_context = context;
    context_.revoke = hear;
  }

  // With the engine's token. Ends the communicator's waiting operations with the error.
  void revoke(const Error& error);
  // Precondition: no other thread drives the engine. Delivers what was sent, by the deadline.
  void close(const Error& why, std::uint64_t deadline_ns);

 private:
  std::unique_ptr<CallTrace> trace_;  // outlives what it observes
  std::unique_ptr<Engine> engine_;
  HostCompute compute_;
  CommState state_;
  CallContext context_;
  Model model_;
  const TransportTable table_;
  const int rank_;             // as callers number it
  std::vector<Route> routes_;  // indexed by place in `order_`
  RankOrder order_;
  Hosts hosts_;
  OpenTransports transports_;
  bool one_process_ = false;
};

}  // namespace pith
