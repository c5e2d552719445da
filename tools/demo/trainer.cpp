#include "tools/demo/trainer.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

namespace pith::demo {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// FNV-1a over 32-bit words.
std::uint64_t hash(std::span<const float> parameters) {
  std::uint64_t value = 0xcbf29ce484222325U;
  for (const float parameter : parameters) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &parameter, sizeof(bits));
    value = (value ^ bits) * 0x100000001b3U;
  }
  return value;
}

// The part of the test set that this rank evaluates.
Samples test_share(const Samples& test, const Session& session) {
  const auto ranks = static_cast<std::size_t>(session.ranks());
  Samples share;
  for (auto i = static_cast<std::size_t>(session.rank()); i < test.size(); i += ranks) {
    share.append(test, i);
  }
  return share;
}

// One rank's state between steps.
struct Replica {
  Replica(const Options& options, const Dataset& data, Session& with)
      : session(with),
        model(demo_model()),
        parameters(model.parameter_count(), 0.0F),
        gradient(model.parameter_count()),
        sgd{options.rate, options.momentum, std::vector<float>(model.parameter_count(), 0.0F)},
        test(test_share(data.test, with)),
        test_size(data.test.size()) {
    if (session.rank() == 0) parameters = model.initial_parameters(options.seed);
  }

  // Each bucket is averaged while the following ones are computed.
  void step(const Samples& batch, float rate) {
    const std::span<float> all = gradient.span();
    const Evaluation result =
        model.differentiate(parameters, batch, all, [&](std::size_t begin, std::size_t count) {
          session.start_average(all.subspan(begin, count));
        });
    session.finish_averages();
    sgd.rate = rate;
    sgd.step(all, parameters);
    loss_sum += result.loss_sum;
    samples += batch.size();
  }

  // Over all ranks; `training_s` is the time since the training began.
  EpochSummary summarise(double training_s) {
    const Evaluation tested = model.evaluate(parameters, test);
    std::array<double, 6> sums = {loss_sum,
                                  static_cast<double>(samples),
                                  static_cast<double>(tested.correct),
                                  static_cast<double>(session.bytes()),
                                  session.seconds() - seconds_before,
                                  training_s};
    session.sum(sums);
    loss_sum = 0.0;
    samples = 0;
    return {sums[0] / sums[1], sums[2] / static_cast<double>(test_size), sums[3],
            sums[4] / sums[5]};
  }

  Session& session;
  Model model;
  std::vector<float> parameters;
  SharedFloats gradient;
  Sgd sgd;
  Samples test;
  std::size_t test_size;
  double seconds_before = 0.0;  // the session's, when the training began
  double loss_sum = 0.0;
  std::size_t samples = 0;
};

}  // namespace

void train_rank(const Options& options, const Dataset& data, Session& session, const Board& board,
                Progress& progress) {
  Schedule schedule(options, data.train.size());
  Replica replica(options, data, session);
  session.broadcast(replica.parameters);

  RankReport report{};
  report.identical = 1;
  const auto compare_ranks = [&](std::span<float> snapshot) {
    report.hash = hash(replica.parameters);
    if (!session.same_everywhere(report.hash)) report.identical = 0;
    if (session.rank() == 0) std::ranges::copy(replica.parameters, snapshot.begin());
  };

  replica.seconds_before = session.seconds();
  const Clock::time_point start = Clock::now();
  for (std::size_t step = 0; step < schedule.steps(); ++step) {
    progress.step(step);
    replica.step(gather(data.train, schedule.share(step, session.rank())), schedule.rate(step));
    for (std::size_t i = 0; i < checkpoints.size(); ++i) {
      if (step + 1 == checkpoints[i].steps) compare_ranks(board.snapshot(i));
    }
    if ((step + 1) % schedule.steps_per_epoch() == 0) {
      const EpochSummary summary = replica.summarise(seconds_since(start));
      report.accuracy = summary.accuracy;
      progress.epoch(step / schedule.steps_per_epoch(), summary);
    }
  }
  compare_ranks(board.final_parameters());
  report.total_s = seconds_since(start);
  report.communication_s = session.seconds() - replica.seconds_before;
  report.bytes = session.bytes();
  report.collectives = session.collectives();
  board.reports()[static_cast<std::size_t>(session.rank())] = report;
}

SingleProcess train_single(const Options& options, const Dataset& data,
                           const std::function<void(std::size_t)>& after_step) {
  const Clock::time_point start = Clock::now();
  Schedule schedule(options, data.train.size());
  Model model = demo_model();
  SingleProcess result;
  result.first_parameters = model.initial_parameters(options.seed);
  std::vector<float> parameters = result.first_parameters;
  std::vector<float> gradient(model.parameter_count());
  Sgd sgd{options.rate, options.momentum, {}};
  for (std::size_t step = 0; step < schedule.steps(); ++step) {
    const Samples batch = gather(data.train, schedule.global_batch(step));
    model.differentiate(parameters, batch, gradient, [](std::size_t, std::size_t) {});
    sgd.rate = schedule.rate(step);
    sgd.step(gradient, parameters);
    for (std::size_t i = 0; i < checkpoints.size(); ++i) {
      if (step + 1 == checkpoints[i].steps) result.snapshots[i] = parameters;
    }
    after_step(step + 1);
  }
  result.accuracy = static_cast<double>(model.evaluate(parameters, data.test).correct) /
                    static_cast<double>(data.test.size());
  result.final_parameters = std::move(parameters);
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace pith::demo
