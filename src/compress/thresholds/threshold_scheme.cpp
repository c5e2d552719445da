// [Strom, "Scalable distributed DNN training using commodity GPU cloud computing", Interspeech
// 2015]
#include "compress/thresholds/threshold_keys.hpp"

namespace pith {

extern const Scheme threshold_scheme;

namespace {

constexpr double largest_float = 3.4028234663852886e38;
constexpr double smallest_float = 1.4012984643248171e-45;
constexpr std::array threshold_keys{keys::number<0>("value", smallest_float / 2, largest_float,
                                                    "a magnitude of float32, more than 0"),
                                    keys::values,
                                    keys::feedback,
                                    keys::hierarchy,
                                    keys::bypass,
                                    keys::nonfinite};

}  // namespace

// How many elements reach it is not known before; models expect the density.
constinit const Scheme threshold_scheme{
    .name = "threshold",
    .summary = "every rank sends its elements of at least a magnitude",
    .electors = Electors::each_by_rule,
    .exchange = "threshold",
    .keys = threshold_keys,
    .density = 0.01,
    .numbers = {0.01}};

}  // namespace pith
