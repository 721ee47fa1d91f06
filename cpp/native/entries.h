// Every op body of our own, one header a family. Generated registrations include this.
#pragma once

#include "activation.h"
#include "amp.h"
#include "convolution.h"
#include "copy.h"
#include "factory.h"
#include "index.h"
#include "loss.h"
#include "matmul.h"
#include "memory.h"
#include "norm.h"
#include "pool.h"
#include "random.h"
#include "reduce.h"
#include "scan.h"
#include "softmax.h"
#include "sort.h"
