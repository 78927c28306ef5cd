"""Write twelve small artificial scans with three readers each: the data of docs/tutorials/hospital.md."""

import nibabel
import numpy as np

SHAPE, SPACING = (24, 20, 12), (1.0, 1.0, 2.5)
grid = np.stack(np.meshgrid(*map(np.arange, SHAPE), indexing="ij"), axis=-1)
lines = ["case,patient,scanner,probability,reader_1,reader_2,reader_3"]
for i in range(1, 13):
    rng = np.random.default_rng(i)
    middle = np.array(SHAPE) / 2 + rng.normal(0, 1, 3)
    distance = np.linalg.norm((grid - middle) * SPACING, axis=-1)
    marked = rng.random((3, *SHAPE)) < 1 / (1 + np.exp(distance - 7))
    model = 1 / (1 + np.exp(2 * (distance - 7)))  # more certain than the readers
    model[distance > 14] = 0
    images = {"model": model.astype("float32")}
    for r in range(3):
        if r < 2 or i not in (3, 5, 11):  # the third reader was absent for three cases
            images[f"reader-{r + 1}"] = (marked[r] & (distance < 12)).astype("uint8")
    files = dict.fromkeys(("model", "reader-1", "reader-2", "reader-3"), "")
    for name, image in images.items():
        affine = np.diag([*SPACING, 1.0])
        if (i, name) == (7, "reader-2"):
            affine[0, 3] = 0.8  # this mask is shifted by 0.8 mm
        files[name] = f"case-{i:02}-{name}.nii.gz"
        nibabel.save(nibabel.Nifti1Image(image, affine), files[name])
    scanner = "A" if i < 7 else "B"
    lines.append(f"case-{i:02},patient-{i:02},{scanner}," + ",".join(files.values()))
with open("cases.csv", "w") as manifest:
    manifest.write("\n".join(lines) + "\n")
