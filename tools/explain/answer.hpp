// Every way to make a call, with what the cost functions say of it, and the one the library takes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "model/model.hpp"
#include "question.hpp"

namespace pith_explain {

struct Candidate {
  std::string name;
  bool compressed = false;
  double exchange_s = 0;  // on the link, with reducing
  // Of a compressed call, the dense way of making it included: reading the gradient, adding pairs,
  // writing the result.
  double work_s = 0;
  double timeouts_s = 0;  // of exchange_s, in the mean: until lost packets are sent again
  std::string closed;     // why the library cannot take it here; empty: it may

  double seconds() const { return exchange_s + work_s; }
  bool open() const { return closed.empty(); }
};

// Bytes that a rank sends, in the mean over the ranks, plain and coded.
struct Sent {
  double plain = 0;
  double coded = 0;
};

struct Answer {
  std::vector<Candidate> candidates;  // open ones by cost, then the others
  std::size_t taken = 0;
  bool forced = false;       // by PITH_ALGO
  std::string bypass;        // why a compressed call is made dense, or not; empty: not compressed
  std::size_t elements = 0;  // of a compressed call, and how many of them a rank elects
  std::size_t elected = 0;
  Sent sent;  // of a call that moves coded values; else zeros

  const Candidate& takes() const { return candidates[taken]; }
  const Candidate& cheapest() const { return candidates.front(); }
  // How much dearer the taken one is than the cheapest: 0.1 for a tenth.
  double regret() const;
};

// The library's own choice, with PITH_ALGO and other settings as in the environment.
pith::Expected<std::unique_ptr<pith::Model>> model_of(const Question& question);
Answer answer(const Question& question, const pith::Model& model);

// Why the algorithm cannot make calls of that many ranks here.
std::string why_not_serving(const pith::Algorithm& algorithm, int ranks);

// The ways to carry out a compressed call by the question's spec; `takes` says which one it is.
std::vector<Candidate> compressed_forms(const Question& question, const pith::Model& model,
                                        std::string& takes);

// Whether the collective has a form that codes every value it moves, and keeps nothing.
bool has_coded_form(pith::Collective collective);
// That form by each algorithm that can carry it, what it sends, and which one it is.
// Precondition: has_coded_form(), and there is an element.
std::vector<Candidate> coded_moves(const Question& question, const pith::Model& model, Sent& sent,
                                   std::string& takes);

}  // namespace pith_explain
