#include "tools/demo/scheme_training.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <utility>

#include "compress/scheme.hpp"
#include "tools/demo/check.hpp"
#include "tools/demo/schedule.hpp"

namespace pith::demo {
namespace {

using Clock = std::chrono::steady_clock;

// One compressor per layer; none if the scheme is dense.
class Compressors {
 public:
  Compressors(const std::string& spec, std::span<const Model::Part> layers) {
    if (spec == "dense") return;
    for (const Model::Part& layer : layers) {
      pithCompressor_t made = nullptr;
      check(pithCompressorCreate(&made, spec.c_str()), "pithCompressorCreate");
      all_.push_back(made);
      const std::array rows{layer.inputs, std::size_t{1}};  // weights, biases
      const std::array columns{layer.outputs, layer.outputs};
      check(pithCompressorSetShape(made, rows.data(), columns.data(), rows.size()),
            "pithCompressorSetShape");
    }
  }
  ~Compressors() {
    for (pithCompressor_t compressor : all_) pithCompressorDestroy(compressor);
  }
  Compressors(const Compressors&) = delete;
  Compressors& operator=(const Compressors&) = delete;

  bool empty() const { return all_.empty(); }
  pithCompressor_t operator[](std::size_t layer) const { return all_[layer]; }

  // Of the last call.
  pithCompressorStats_t stats(std::size_t layer) const {
    pithCompressorStats_t stats{};
    stats.size = sizeof(stats);
    check(pithCompressorGetStats(all_[layer], &stats), "pithCompressorGetStats");
    return stats;
  }
  // Of the last call, over all layers.
  double density() const {
    double moved = 0.0;
    double all = 0.0;
    for (std::size_t layer = 0; layer < all_.size(); ++layer) {
      const pithCompressorStats_t stats = this->stats(layer);
      moved += stats.density * static_cast<double>(stats.count);
      all += static_cast<double>(stats.count);
    }
    return all_.empty() ? 1.0 : moved / all;
  }

 private:
  std::vector<pithCompressor_t> all_;
};

Samples share_of(const Samples& samples, int ranks, int rank) {
  Samples share;
  for (auto i = static_cast<std::size_t>(rank); i < samples.size();
       i += static_cast<std::size_t>(ranks)) {
    share.append(samples, i);
  }
  return share;
}

Options options_of(const SchemePlan& plan, int ranks, std::size_t train_size) {
  Options options;
  options.ranks = ranks;
  options.batch = plan.batch;
  options.seed = plan.seed;
  const std::size_t steps_per_epoch = Schedule(options, train_size).steps_per_epoch();
  options.epochs = (plan.steps + steps_per_epoch - 1) / steps_per_epoch;
  return options;
}

class Training {
 public:
  Training(const SchemePlan& plan, const Dataset& data, Model model, pithComm_t comm, int ranks,
           int rank)
      : data_(data),
        model_(std::move(model)),
        parts_(model_.parts()),
        comm_(comm),
        ranks_(ranks),
        rank_(rank),
        models_differ_(averages_parameters(plan.spec)),
        schedule_(options_of(plan, ranks, data.train.size()), data.train.size()),
        compressors_(plan.spec, parts_),
        parameters_(model_.initial_parameters(plan.seed)),
        gradient_(parameters_.size()),
        mean_(parameters_.size()),
        sgd_{plan.rate, plan.momentum, {}},
        test_(to_evaluate(data.test)) {}

  void step(std::size_t number) {
    const Samples batch = gather(data_.train, schedule_.share(number, rank_));
    model_.differentiate(parameters_, batch, gradient_, [](std::size_t, std::size_t) {});
    if (models_differ_) {
      step_and_average_parameters();
    } else {
      average_gradients_and_step();
    }
    densities_ += compressors_.density();
  }

  // How the last step's call of the largest layer was made.
  SchemeChoice choice() const {
    const auto largest = std::max_element(
        parts_.begin(), parts_.end(),
        [](const auto& one, const auto& other) { return one.count < other.count; });
    const auto stats = compressors_.stats(static_cast<std::size_t>(largest - parts_.begin()));
    SchemeChoice choice{0, 0.0, stats.bypassed != 0 ? 1.0 : stats.density_target, {}};
    std::copy_n(stats.algorithm, choice.algorithm.size() - 1, choice.algorithm.begin());
    return choice;
  }
  bool compresses() const { return !compressors_.empty(); }

  double test_accuracy() { return over_ranks(test_).accuracy; }
  double train_loss() { return over_ranks(to_evaluate(data_.train)).loss; }
  double densities() const { return densities_; }
  const std::vector<float>& parameters() const { return parameters_; }

 private:
  struct Score {
    double loss;
    double accuracy;
  };

  // All ranks have the same parameters before and after.
  void average_gradients_and_step() {
    average(gradient_, mean_);
    sgd_.step(mean_, parameters_);
  }

  // Each rank has parameters of its own, which come nearer to its neighbours'.
  void step_and_average_parameters() {
    sgd_.step(gradient_, parameters_);
    average(parameters_, parameters_);
  }

  // Layer by layer, in one group; in place if `from` is `to`.
  void average(const std::vector<float>& from, std::vector<float>& to) {
    check(pithGroupStart(), "pithGroupStart");
    pithResult_t queued = pithSuccess;
    for (std::size_t layer = 0; layer < parts_.size() && queued == pithSuccess; ++layer) {
      const Model::Part part = parts_[layer];
      const float* const send = from.data() + part.begin;
      float* const recv = to.data() + part.begin;
      queued = compressors_.empty()
                   ? pithAllReduce(send, recv, part.count, pithFloat32, pithAvg, comm_, nullptr)
                   : pithAllReduceCompressed(send, recv, part.count, pithFloat32, pithAvg,
                                             compressors_[layer], comm_, nullptr);
    }
    const pithResult_t done = pithGroupEnd();
    check(queued, "averaging", comm_);
    check(done, "pithGroupEnd", comm_);
  }

  // Of one model each rank evaluates a part of the samples; a model of its own it evaluates on all.
  Samples to_evaluate(const Samples& samples) const {
    return models_differ_ ? samples : share_of(samples, ranks_, rank_);
  }

  // The mean over the samples, and over the ranks where their models differ.
  Score over_ranks(const Samples& samples) {
    const Evaluation own = model_.evaluate(parameters_, samples);
    std::array<double, 3> sums = {own.loss_sum, static_cast<double>(own.correct),
                                  static_cast<double>(samples.size())};
    check(
        pithAllReduce(sums.data(), sums.data(), sums.size(), pithFloat64, pithSum, comm_, nullptr),
        "pithAllReduce", comm_);
    return {sums[0] / sums[2], sums[1] / sums[2]};
  }

  const Dataset& data_;
  Model model_;
  std::vector<Model::Part> parts_;
  pithComm_t comm_;
  int ranks_;
  int rank_;
  bool models_differ_;  // from rank to rank
  Schedule schedule_;
  Compressors compressors_;
  std::vector<float> parameters_;
  std::vector<float> gradient_;
  std::vector<float> mean_;
  Sgd sgd_;
  Samples test_;
  double densities_ = 0.0;  // summed over the steps
};

void note_choice(const SchemeChoice& made, SchemeRun& run) {
  if (!run.choices.empty() && run.choices.back().density == made.density &&
      run.choices.back().algorithm == made.algorithm) {
    return;
  }
  run.choices.push_back(made);
}

}  // namespace

bool averages_parameters(const std::string& spec) {
  const Expected<Spec> parsed = Spec::parse(spec);  // "dense" is none
  return parsed && parsed->scheme->averages_parameters;
}

SchemeRun train_with_scheme(const SchemePlan& plan, const Dataset& data, Model model,
                            pithComm_t comm, int ranks, int rank,
                            const std::function<void(std::size_t)>& between_steps) {
  Training training(plan, data, std::move(model), comm, ranks, rank);
  SchemeRun run;
  run.curve.push_back({0.0, training.test_accuracy()});
  for (std::size_t step = 0; step < plan.steps; ++step) {
    between_steps(step);
    const Clock::time_point start = Clock::now();
    training.step(step);
    const double before_s = run.seconds;
    run.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    if (training.compresses()) {
      SchemeChoice choice = training.choice();
      choice.step = step;
      choice.seconds = before_s;
      note_choice(choice, run);
    }
    run.steps = step + 1;
    const bool last = run.steps == plan.steps;
    if (!last && run.steps % plan.evaluate_every != 0) continue;
    run.curve.push_back({run.seconds, training.test_accuracy()});
    if (run.curve.back().accuracy >= plan.enough) break;
  }
  between_steps(run.steps);
  run.accuracy = run.curve.back().accuracy;
  run.loss = training.train_loss();
  run.density = training.densities() / static_cast<double>(run.steps);
  run.parameters = training.parameters();
  return run;
}

}  // namespace pith::demo
