#include "cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "model/nominal.hpp"

namespace pith_sim {

using namespace pith;
using nlohmann::json;

namespace {

constexpr int most_ranks = 16384;

// What a file has, key by key. The first mistake is kept.
class Reader {
 public:
  Reader(const json& object, std::string name) : object_(object), name_(std::move(name)) {}

  const Error& error() const { return error_; }
  void refuse(std::string_view key, const json& value, std::string_view expected) {
    if (error_) return;
    error_ = Error(Code::invalid_argument, fmt::format("{}: \"{}\" is {}, expected {}", name_, key,
                                                       value.dump(), expected));
  }
  // Null: not there.
  const json* find(std::string_view key) {
    known_ += (known_.empty() ? "" : ", ") + std::string(key);
    const auto found = object_.find(key);
    if (found == object_.end()) return nullptr;
    ++used_;
    return &*found;
  }
  void number(std::string_view key, double& into) {
    const json* value = find(key);
    if (!value) return;
    if (!value->is_number() || !(value->get<double>() >= 0)) {
      return refuse(key, *value, "a number of at least 0");
    }
    into = value->get<double>();
  }
  void flag(std::string_view key, bool& into) {
    const json* value = find(key);
    if (!value) return;
    if (!value->is_boolean()) return refuse(key, *value, "true or false");
    into = value->get<bool>();
  }
  // After all keys have been asked for.
  void refuse_others() {
    if (error_ || used_ == object_.size()) return;
    for (const auto& [key, value] : object_.items()) {
      if (fmt::format(", {}, ", known_).find(fmt::format(", {}, ", key)) != std::string::npos)
        continue;
      error_ =
          Error(Code::invalid_argument,
                fmt::format("{}: key \"{}\" is unknown, expected one of {}", name_, key, known_));
    }
  }
  const std::string& name() const { return name_; }

 private:
  const json& object_;
  std::string name_;
  Error error_;
  std::string known_;
  std::size_t used_ = 0;
};

void read_link(Reader& reader, std::string_view key, LinkCost& into) {
  const json* value = reader.find(key);
  if (!value) return;
  if (value->is_string()) {
    const auto link = pith_explain::parse_link(key, value->get<std::string>());
    if (!link)
      return reader.refuse(key, *value, "shm, 10g, 1g or 100m, and perhaps a delay: 1g,+5ms");
    into = link->cost;
    return;
  }
  if (!value->is_object())
    return reader.refuse(key, *value, "a link's name, or its alpha and beta");
  Reader link(*value, fmt::format("{}: \"{}\"", reader.name(), key));
  link.number("alpha", into.alpha);
  link.number("beta", into.beta);
  link.refuse_others();
  if (link.error()) reader.refuse(key, *value, "alpha and beta, numbers of at least 0");
}

bool is_count(const json& value) {
  return value.is_number_integer() && value.get<std::int64_t>() >= 1 &&
         value.get<std::int64_t>() <= most_ranks;
}

void read_hosts(Reader& reader, Cluster& cluster) {
  constexpr std::string_view counts = "whole numbers from 1 to 16384";
  const json* hosts = reader.find("hosts");
  const json* ranks = reader.find("ranks_per_host");
  if (hosts && !is_count(*hosts)) return reader.refuse("hosts", *hosts, counts);
  if (!ranks) return reader.refuse("ranks_per_host", nullptr, counts);
  if (is_count(*ranks)) {
    cluster.ranks_per_host.assign(hosts ? hosts->get<std::size_t>() : 1, ranks->get<int>());
  } else if (ranks->is_array() && !ranks->empty() &&
             std::all_of(ranks->begin(), ranks->end(), is_count)) {
    cluster.ranks_per_host = ranks->get<std::vector<int>>();
    if (hosts && hosts->get<int>() != cluster.hosts()) {
      reader.refuse("hosts", *hosts, "as many as \"ranks_per_host\" lists");
    }
  } else {
    return reader.refuse("ranks_per_host", *ranks, counts);
  }
  if (cluster.ranks() < 2 || cluster.ranks() > most_ranks) {
    reader.refuse("ranks_per_host", *ranks, fmt::format("2 to {} ranks in all", most_ranks));
  }
}

void read_uplink(Reader& reader, Cluster& cluster) {
  const json* value = reader.find("uplink");
  if (!value) return;
  if (*value != "shared" && *value != "own")
    return reader.refuse("uplink", *value, "shared or own");
  cluster.shared_uplink = *value == "shared";
}

// In the order of time; links must not stand still at last.
void read_bandwidth(Reader& reader, Cluster& cluster) {
  constexpr std::string_view expected =
      "a list as [{\"at\": 0.01, \"factor\": 0.1}], in the order of time, the last factor above 0";
  const json* value = reader.find("bandwidth");
  if (!value) return;
  if (!value->is_array()) return reader.refuse("bandwidth", *value, expected);
  double last = 0;
  for (const json& one : *value) {
    if (!one.is_object()) return reader.refuse("bandwidth", *value, expected);
    Reader change(one, reader.name());
    SimConfig::Bandwidth from;
    change.number("at", from.at_s);
    change.number("factor", from.factor);
    change.refuse_others();
    if (change.error() || from.at_s < last) return reader.refuse("bandwidth", *value, expected);
    last = from.at_s;
    cluster.bandwidth.push_back(from);
  }
  const bool stands = !cluster.bandwidth.empty() && !(cluster.bandwidth.back().factor > 0);
  if (stands) reader.refuse("bandwidth", *value, expected);
}

}  // namespace

std::vector<int> hosts_of(const Cluster& cluster) {
  std::vector<int> hosts;
  for (int host = 0; host < cluster.hosts(); ++host) {
    const int ranks = cluster.ranks_per_host[static_cast<std::size_t>(host)];
    hosts.insert(hosts.end(), static_cast<std::size_t>(ranks), host);
  }
  return hosts;
}

int Cluster::ranks() const {
  return std::accumulate(ranks_per_host.begin(), ranks_per_host.end(), 0);
}

Expected<Cluster> read_cluster(const std::string& text, const std::string& name) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) {
    return Error(
        Code::invalid_argument,
        fmt::format("{} is not a cluster: expected JSON as {{\"ranks_per_host\": 8}}", name));
  }
  Cluster cluster;
  cluster.inside = nominal::memory;
  cluster.between = nominal::wire;
  cluster.inside.message = cluster.between.message = 0;  // cores send in no time in the simulator
  cluster.gamma = nominal::wire.gamma;
  double seed = 1;
  Reader reader(object, name);
  read_hosts(reader, cluster);
  read_link(reader, "inside", cluster.inside);
  read_link(reader, "between", cluster.between);
  read_uplink(reader, cluster);
  reader.number("gamma", cluster.gamma);
  reader.number("jitter", cluster.jitter_s);
  reader.number("seed", seed);
  read_bandwidth(reader, cluster);
  reader.flag("views", cluster.views);
  reader.flag("oversubscribed", cluster.oversubscribed);
  reader.refuse_others();
  if (cluster.views && cluster.hosts() > 1)
    reader.refuse("views", true, "false with several hosts");
  cluster.seed = static_cast<std::uint64_t>(std::min(seed, 0x1p63));
  if (reader.error()) return reader.error();
  return cluster;
}

Expected<Cluster> with_ranks(const Cluster& cluster, int ranks) {
  if (ranks < 2 || ranks > cluster.ranks()) {
    return Error(Code::invalid_argument,
                 fmt::format("--ranks is {}, expected 2 to {}, those of the cluster", ranks,
                             cluster.ranks()));
  }
  Cluster smaller = cluster;
  smaller.ranks_per_host.clear();
  for (const int of_host : cluster.ranks_per_host) {
    if (ranks == 0) break;
    smaller.ranks_per_host.push_back(std::min(of_host, ranks));
    ranks -= smaller.ranks_per_host.back();
  }
  return smaller;
}

SimConfig config_of(const Cluster& cluster) {
  SimConfig config;
  config.ranks = cluster.ranks();
  config.seed = cluster.seed;
  config.jitter_s = cluster.jitter_s;
  config.bandwidth = cluster.bandwidth;
  config.gamma_s_per_byte = cluster.gamma;
  const std::vector<int> hosts = hosts_of(cluster);
  const SimLink inside{cluster.inside.alpha, cluster.inside.beta};
  const SimLink between{cluster.between.alpha, cluster.between.beta};
  config.link_of = [hosts, inside, between](int from, int to) {
    const auto host = [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; };
    return host(from) == host(to) ? inside : between;
  };
  // An uplink is that of its host's first rank.
  std::vector<int> first;
  for (const int ranks : cluster.ranks_per_host) {
    first.insert(first.end(), static_cast<std::size_t>(ranks), static_cast<int>(first.size()));
  }
  if (cluster.shared_uplink) {
    config.uplink_of = [first](int rank) { return first[static_cast<std::size_t>(rank)]; };
  }
  return config;
}

pith_explain::Question question_of(const Cluster& cluster, Collective collective,
                                   std::size_t bytes) {
  pith_explain::Question question;
  question.collective = collective;
  question.bytes = bytes;
  question.ranks = cluster.ranks();
  question.hosts = cluster.hosts();
  question.ranks_a_host = std::ranges::max(cluster.ranks_per_host);
  question.link = cluster.hosts() > 1 ? cluster.between : cluster.inside;
  question.link.gamma = cluster.gamma;
  question.views = cluster.views;
  question.oversubscribed = cluster.oversubscribed;
  return question;
}

}  // namespace pith_sim
