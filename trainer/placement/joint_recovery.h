// Joint recovery: the probability that all experts survive the loss of k failure domains, for any
// number of domains. recovery.h counts sets of up to 20 domains; this splits larger problems.
//
// What is lost is decided by the smallest holder sets alone. These fall into components that share
// no domain. A component of one set, or of at most kExactRanksMax domains, has a known number of
// surviving subsets of each size; counts of several components multiply as polynomials. That is
// exact (to the rounding of sums of positive long doubles), and what placements made of groups of
// ranks come to, whatever their size. Only what is entangled beyond that is estimated: domains die
// one after the other in random order, which gives a sample for every k at once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace moetrain {

struct RecoveryAt {
  uint32_t failed = 0;     // domains
  double probability = 0;  // that every holder set keeps a live domain
  double error = 0;        // half width of the 95 % interval (Wilson); 0: exact
};

// k = 1 .. domains - 1, or up to `failed_max`: less work, because larger sets cannot be lost then.
// Each holder set: domains below `domains`, ascending, each once; an empty one never survives.
// Deterministic: samples are drawn from a fixed seed.
std::vector<RecoveryAt> joint_recovery(std::vector<std::vector<uint32_t>> holder_sets,
                                       uint32_t domains, uint32_t failed_max = UINT32_MAX);

// The same; nullopt if it could only be estimated.
std::optional<std::vector<RecoveryAt>> exact_recovery(
    std::vector<std::vector<uint32_t>> holder_sets, uint32_t domains,
    uint32_t failed_max = UINT32_MAX);

// The sets that contain no other set, each once: only these decide.
std::vector<std::vector<uint32_t>> smallest_sets(std::vector<std::vector<uint32_t>> sets);

}  // namespace moetrain
